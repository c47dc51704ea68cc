-- Memories may be generated from a description, without reading a chat: such a use has an empty chat_id. It counts for
-- its user, character, model, stage and day, and is no chat among chats.

CREATE OR REPLACE VIEW spend_by_user AS
SELECT
    user_id, count() AS uses, uniqExactIf(chat_id, chat_id != '') AS chats,
    sum(u.tokens_in) AS tokens_in, sum(u.tokens_out) AS tokens_out,
    sumIf(u.credits, stage != 'reply') AS memory_credits, sum(u.credits) AS credits
FROM usage AS u
GROUP BY user_id;

CREATE OR REPLACE VIEW spend_by_character AS
SELECT
    character, count() AS uses, uniqExactIf(user_id, user_id != '') AS users,
    uniqExactIf(chat_id, chat_id != '') AS chats,
    sum(u.tokens_in) AS tokens_in, sum(u.tokens_out) AS tokens_out,
    sumIf(u.credits, stage != 'reply') AS memory_credits, sum(u.credits) AS credits
FROM usage AS u
GROUP BY character;

CREATE OR REPLACE VIEW spend_by_chat AS
SELECT
    chat_id, max(u.user_id) AS user_id, countIf(stage = 'reply') AS turns,
    sum(u.tokens_in) AS tokens_in, sum(u.tokens_out) AS tokens_out,
    sumIf(u.credits, stage != 'reply') AS memory_credits, sum(u.credits) AS credits,
    min(at) AS first_use, max(at) AS last_use
FROM usage AS u
WHERE chat_id != ''
GROUP BY chat_id;

CREATE OR REPLACE VIEW spend_by_day AS
SELECT
    toDate(at) AS day, count() AS uses, uniqExactIf(user_id, user_id != '') AS users,
    uniqExactIf(chat_id, chat_id != '') AS chats,
    sum(u.tokens_in) AS tokens_in, sum(u.tokens_out) AS tokens_out,
    sumIf(u.credits, stage != 'reply') AS memory_credits, sum(u.credits) AS credits
FROM usage AS u
GROUP BY day;
