-- Says up to when partitions are applied; what was said of a later time stays: it is true for ever, whoever said it.
--
-- KEYS  1 applied:<epoch>
-- ARGV  1 seconds to keep it  2.. partition, milliseconds since 1970, partition, milliseconds, ...
for at = 2, #ARGV, 2 do
  if tonumber(ARGV[at + 1]) > tonumber(redis.call('HGET', KEYS[1], ARGV[at]) or '-1') then
    redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
  end
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return 1
