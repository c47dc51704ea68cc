-- The newest changes of entries, each back to the one asked for: they name the one before, so nothing else is read.
--
-- KEYS  1 :w  2 :x  3 :h
-- ARGV  per entry: memory id, number of the last change to read (0: all)
-- Returns {version, change, change, ...}.

local reply = {redis.call('HGET', KEYS[1], 'v') or '0'}
for i = 1, #ARGV, 2 do
  local place = redis.call('HGET', KEYS[2], ARGV[i])
  local number = place and tonumber(string.match(place, '^%S* (%d+)')) or 0
  local stop = math.max(1, tonumber(ARGV[i + 1]))
  while number >= stop do
    local change = redis.call('HGET', KEYS[3], number)
    if not change then break end
    reply[#reply + 1] = change
    number = tonumber(string.match(change, '^{"previous":(%d+)'))
  end
end
return reply
