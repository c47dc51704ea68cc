-- A chunk's summary is saved, its messages go to the archive, and what is to be published is noted: all or nothing.
--
-- KEYS  1 :w  2 :m  3 :k  4 :s  5 :sa  6 :a  7 :ao  8 :o:summarise
-- ARGV  1 channel  2 chunk id  3 index  4 summary as JSON  5 messages, compressed  6 count of messages
--       7 hint as JSON  8 first seq  9 last seq  10.. outbox: field, value, field, value, ...
-- Returns saved | repeated (another writer was first) | stale (taken back, or covered by no pending chunk any more).
local known = redis.call('HGET', KEYS[4], ARGV[2])
-- the very same bytes: the client lost the answer and asked again
if known then return known == ARGV[4] and 'saved' or 'repeated' end
if redis.call('HEXISTS', KEYS[5], ARGV[2]) == 1 then return 'repeated' end
if redis.call('HEXISTS', KEYS[3], ARGV[2]) == 0 then return 'stale' end

redis.call('HSET', KEYS[4], ARGV[2], ARGV[4])
redis.call('HSET', KEYS[6], ARGV[2], ARGV[5])
-- at the place of its index, also when an earlier chunk is still without a summary
local index, length = tonumber(ARGV[3]), redis.call('LLEN', KEYS[7])
if length > index then
  redis.call('LSET', KEYS[7], index, ARGV[2])
else
  for _ = length, index - 1 do redis.call('RPUSH', KEYS[7], '') end
  redis.call('RPUSH', KEYS[7], ARGV[2])
end
local window = redis.call('HMGET', KEYS[1], 'lf', 'lm')
local live = tonumber(window[1] or '0')
-- what is live as well stays until it leaves the window
for seq = tonumber(ARGV[8]), math.min(tonumber(ARGV[9]), live - 1) do redis.call('HDEL', KEYS[2], string.format('%d', seq)) end
redis.call('HDEL', KEYS[3], ARGV[2])
redis.call('HINCRBY', KEYS[1], 'sm', ARGV[6])
local version = redis.call('HINCRBY', KEYS[1], 'v', 1)
if #ARGV > 9 then redis.call('HSET', KEYS[8], unpack(ARGV, 10)) end

redis.call('PUBLISH', ARGV[1], ARGV[7])
redis.call('PUBLISH', ARGV[1], string.format('{"type":"window","version":%d,"live_messages":%d,"pending_messages":%d}',
  version, tonumber(window[2] or '0'), redis.call('HLEN', KEYS[2]) - tonumber(window[2] or '0')))
return 'saved'
