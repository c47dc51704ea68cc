-- A person's edit of a summary in use: compare-and-set on its version.
--
-- KEYS  1 :w  2 :s  3 :sa  4 :o:merge
-- ARGV  1 channel  2 id  3 expected version  4 new summary as JSON  5 hint as JSON
--       6.. outbox: field, value, field, value, ...
-- Returns {saved} | {missing} | {merged} | {conflict, current version}
local known = redis.call('HGET', KEYS[2], ARGV[2])
if not known then
  return {redis.call('HEXISTS', KEYS[3], ARGV[2]) == 1 and 'merged' or 'missing'}
end
-- the very same bytes: the client lost the answer and asked again
if known == ARGV[4] then return {'saved'} end
local version = cjson.decode(known).version
if version ~= tonumber(ARGV[3]) then return {'conflict', version} end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
redis.call('HINCRBY', KEYS[1], 'v', 1)
redis.call('HSET', KEYS[4], unpack(ARGV, 6))
redis.call('PUBLISH', ARGV[1], ARGV[5])
return {'saved'}
