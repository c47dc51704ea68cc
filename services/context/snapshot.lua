-- A chat as it stands at one moment: a reader never sees half of a change.
--
-- KEYS  1 :w  2 :m  3 :s  4 :k
-- Returns {window fields, messages by number, summaries in use, closed chunks that wait}, or false for no such chat.
-- The cost does not depend on the length of the chat: messages leave :m, and summaries :s, as they are summarised.
local window = redis.call('HGETALL', KEYS[1])
if #window == 0 then return false end
return {window, redis.call('HGETALL', KEYS[2]), redis.call('HVALS', KEYS[3]), redis.call('HLEN', KEYS[4])}
