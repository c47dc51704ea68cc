-- Carries out a plan that was made of one version of a chat: all of it, once, or nothing.
-- The rules are those of services/takeback/policy.py; here is only whether the plan still holds.
--
-- KEYS  1 :w  2 :e  3 :o:window  4.. the keys of the steps
-- ARGV  1 epoch  2 partition  3 offset  4 event id  5 version that was read, or '' where there was no chat
--       6 whole | part (the script after this one in the same transaction notes the event) | last (the chat is deleted)
--       7 channel  8 hint as JSON, or ''  9.. per step: command, place of its key, count of arguments, arguments;
--       of BRING: place of the hash that fields come from, then its field and the one here, ...
-- Returns {status, ...}: applied | repeated | raced | stale | partition | deleted; with the first two follows the outbox
-- (field, value, ...), with partition the one of the chat's earlier events.
local state = redis.call('HMGET', KEYS[1], 'ep', 'pa', 'of', 'v', 'dl')
local same_log = state[1] == ARGV[1]
local function answer(status)
  local reply = redis.call('HGETALL', KEYS[3])
  table.insert(reply, 1, status)
  return reply
end
if same_log and state[2] ~= ARGV[2] then return {'partition', state[2]} end
if state[5] then
  if state[5] == ARGV[4] then return answer('repeated') end
  return {'deleted'}
end
if redis.call('SISMEMBER', KEYS[2], ARGV[4]) == 1 then return answer('repeated') end
if same_log and tonumber(ARGV[3]) <= tonumber(state[3]) then return {'stale', state[3]} end
if (state[4] or '') ~= ARGV[5] then return {'raced'} end

-- where Redis refuses to write (no memory), it has to refuse before the first change: a script that has begun goes on, the
-- turn's behind it is refused, and EXEC undoes nothing
if ARGV[6] == 'part' then redis.call('HSET', KEYS[1], 'v', state[4]) end
local SLICE = 4000 -- even: fields and values stay together; Lua's stack holds about 8,000
local at = 9
while at <= #ARGV do
  local command, key, count = ARGV[at], KEYS[3 + tonumber(ARGV[at + 1])], tonumber(ARGV[at + 2])
  local first, last = at + 3, at + 2 + count
  if count == 0 then redis.call(command, key) end
  if command == 'BRING' then
    local source = KEYS[3 + tonumber(ARGV[first])]
    for pair = first + 1, last, 2 do
      redis.call('HSET', key, ARGV[pair + 1], redis.call('HGET', source, ARGV[pair]))
    end
    first = last + 1
  end
  while first <= last do
    redis.call(command, key, unpack(ARGV, first, math.min(first + SLICE - 1, last)))
    first = first + SLICE
  end
  at = last + 1
end
if ARGV[6] ~= 'part' then redis.call('HSET', KEYS[1], 'ep', ARGV[1], 'pa', ARGV[2], 'of', ARGV[3]) end
if ARGV[6] == 'whole' then redis.call('SADD', KEYS[2], ARGV[4]) end
if ARGV[8] ~= '' then redis.call('PUBLISH', ARGV[7], ARGV[8]) end
return answer('applied')
