-- Views for analysts. All read `usage`, where each use is there once. Nothing here runs when rows are inserted.

CREATE OR REPLACE VIEW spend AS
SELECT
    toDate(at) AS day, user_id, character, chat_id, model, stage,
    count() AS uses, sum(u.tokens_in) AS tokens_in, sum(u.tokens_out) AS tokens_out, sum(u.credits) AS credits
FROM usage AS u
GROUP BY day, user_id, character, chat_id, model, stage;

CREATE OR REPLACE VIEW spend_by_user AS
SELECT
    user_id, count() AS uses, uniqExact(chat_id) AS chats,
    sum(u.tokens_in) AS tokens_in, sum(u.tokens_out) AS tokens_out,
    sumIf(u.credits, stage != 'reply') AS memory_credits, sum(u.credits) AS credits
FROM usage AS u
GROUP BY user_id;

CREATE OR REPLACE VIEW spend_by_character AS
SELECT
    character, count() AS uses, uniqExactIf(user_id, user_id != '') AS users, uniqExact(chat_id) AS chats,
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
GROUP BY chat_id;

CREATE OR REPLACE VIEW spend_by_model AS
SELECT
    model, count() AS uses,
    sum(u.tokens_in) AS tokens_in, sum(u.tokens_out) AS tokens_out, sum(u.credits) AS credits
FROM usage AS u
GROUP BY model;

CREATE OR REPLACE VIEW spend_by_stage AS
SELECT
    stage, count() AS uses,
    sum(u.tokens_in) AS tokens_in, sum(u.tokens_out) AS tokens_out, sum(u.credits) AS credits
FROM usage AS u
GROUP BY stage;

CREATE OR REPLACE VIEW spend_by_day AS
SELECT
    toDate(at) AS day, count() AS uses, uniqExactIf(user_id, user_id != '') AS users,
    uniqExact(chat_id) AS chats,
    sum(u.tokens_in) AS tokens_in, sum(u.tokens_out) AS tokens_out,
    sumIf(u.credits, stage != 'reply') AS memory_credits, sum(u.credits) AS credits
FROM usage AS u
GROUP BY day;

-- What memory costs for every 1,000 turns of the day; NULL on a day without a reply. A turn counts where its
-- frontend reported what the reply cost.
CREATE OR REPLACE VIEW memory_cost_per_1000_turns AS
SELECT
    toDate(at) AS day, countIf(stage = 'reply') AS turns,
    sumIf(u.credits, stage != 'reply') AS memory_credits,
    sumIf(u.tokens_in + u.tokens_out, stage != 'reply') AS memory_tokens,
    memory_credits * 1000 / nullIf(turns, 0) AS credits_per_1000_turns,
    intDiv(memory_tokens * 1000, nullIf(turns, 0)) AS tokens_per_1000_turns
FROM usage AS u
GROUP BY day;

CREATE OR REPLACE VIEW top_chats AS
SELECT
    row_number() OVER (ORDER BY c.credits DESC, chat_id) AS place, chat_id, user_id, turns,
    c.credits AS credits, memory_credits,
    round(100 * toFloat64(memory_credits) / nullIf(toFloat64(c.credits), 0), 1) AS memory_percent, last_use
FROM spend_by_chat AS c;
