-- A chunk's summary is saved, its messages go to the archive, and what is to be published is noted: all or nothing.
--
-- KEYS  1 :w  2 :m  3 :k  4 :s  5 :sa  6 :a  7 :ao  8 :o:summarise
-- ARGV  1 channel  2 chunk id  3 generation  4 index  5 summary as JSON  6 messages, compressed  7 count of messages
--       8 hint as JSON  9 first seq  10 last seq  11.. outbox: field, value, field, value, ...
-- Returns saved | repeated (another writer was first) | stale (taken back, or covered by no pending chunk any more).
local known = redis.call('HGET', KEYS[4], ARGV[2])
-- the very same bytes: the client lost the answer and asked again
if known then return known == ARGV[5] and 'saved' or 'repeated' end
if redis.call('HEXISTS', KEYS[5], ARGV[2]) == 1 then return 'repeated' end
if (redis.call('HGET', KEYS[1], 'g') or '0') ~= ARGV[3] then return 'stale' end
if redis.call('HEXISTS', KEYS[3], ARGV[2]) == 0 then return 'stale' end

redis.call('HSET', KEYS[4], ARGV[2], ARGV[5])
redis.call('HSET', KEYS[6], ARGV[2], ARGV[6])
-- at the place of its index, also when an earlier chunk is still without a summary
local index, length = tonumber(ARGV[4]), redis.call('LLEN', KEYS[7])
if length > index then
  redis.call('LSET', KEYS[7], index, ARGV[2])
else
  for _ = length, index - 1 do redis.call('RPUSH', KEYS[7], '') end
  redis.call('RPUSH', KEYS[7], ARGV[2])
end
for seq = tonumber(ARGV[9]), tonumber(ARGV[10]) do redis.call('HDEL', KEYS[2], string.format('%d', seq)) end
redis.call('HDEL', KEYS[3], ARGV[2])
local covered = redis.call('HINCRBY', KEYS[1], 'sm', ARGV[7])
local version = redis.call('HINCRBY', KEYS[1], 'v', 1)
if #ARGV > 10 then redis.call('HSET', KEYS[8], unpack(ARGV, 11)) end

local window = redis.call('HMGET', KEYS[1], 'lf', 'lm')
redis.call('PUBLISH', ARGV[1], ARGV[8])
redis.call('PUBLISH', ARGV[1], string.format('{"type":"window","version":%d,"live_messages":%d,"pending_messages":%d}',
  version, tonumber(window[2] or '0'), math.max(0, tonumber(window[1] or '0') - covered)))
return 'saved'
