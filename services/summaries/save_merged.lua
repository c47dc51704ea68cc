-- Summaries become one: compare-and-set on the version of every source, and on the chat's generation.
--
-- KEYS  1 :w  2 :s  3 :sa  4 :o:merge
-- ARGV  1 channel  2 generation  3 new id  4 new summary as JSON  5 hint as JSON  6 count of sources
--       7.. per source: id, version, name in the archive; then the outbox: field, value, field, value, ...
-- Returns saved | raced (a source was edited or merged, or something was taken back): nothing has changed then.
-- the very same bytes: the client lost the answer and asked again
if redis.call('HGET', KEYS[2], ARGV[3]) == ARGV[4] then return 'saved' end
if (redis.call('HGET', KEYS[1], 'g') or '0') ~= ARGV[2] then return 'raced' end
local count = tonumber(ARGV[6])
local archived = {}
for i = 1, count do
  local at = 4 + 3 * i
  local source = redis.call('HGET', KEYS[2], ARGV[at])
  if not source or cjson.decode(source).version ~= tonumber(ARGV[at + 1]) then return 'raced' end
  archived[2 * i - 1], archived[2 * i] = ARGV[at + 2], source
end
for i = 1, count do redis.call('HDEL', KEYS[2], ARGV[4 + 3 * i]) end
redis.call('HSET', KEYS[3], unpack(archived))
redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
redis.call('HINCRBY', KEYS[1], 'v', 1)
local rest = 7 + 3 * count
if #ARGV >= rest then redis.call('HSET', KEYS[4], unpack(ARGV, rest)) end
redis.call('PUBLISH', ARGV[1], ARGV[5])
return 'saved'
