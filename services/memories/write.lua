-- What a command has come to is stored in one step, if it was worked out from what is still so.
-- The rules are in services/memories (Python); this script holds the writers to them: nobody writes twice, nobody
-- late, nobody from what another one has changed meanwhile, and no scope gets more than it may hold.
--
-- KEYS  1 :w  2 :c  3 :co  4 :o:memories  5 channel  6.. hashes to change, the scopes first
-- ARGV  1 epoch  2 partition  3 offset  4 command id  5 version that was read  6 new version  7 new number
--       8 result (JSON)  9 outbox entry  10 how many of the hashes are scopes
--       11.. per hash: how many fields to delete, how many to set, the fields, field and value of each
-- Returns {status, detail, field, value, ...}: applied | repeated | stale | partition | raced | caps; the result
-- (of a repeat: the first one's), or what stood against it; then the outbox.

local UNPINNED, PINNED, REMEMBERED = @UNPINNED@, @PINNED@, @REMEMBERED@
local BLOCK = 2000 -- arguments of one call; Lua's stack holds 8,000

local state = redis.call('HMGET', KEYS[1], 'ep', 'pa', 'of', 'v')
local same_log = state[1] == ARGV[1]
local offset = tonumber(ARGV[3])

local function answer(status, detail)
  local reply = redis.call('HGETALL', KEYS[4])
  table.insert(reply, 1, status)
  table.insert(reply, 2, detail)
  return reply
end

if same_log and state[2] ~= ARGV[2] then return {'partition', state[2]} end
local late = same_log and offset <= tonumber(state[3])

local result = redis.call('HGET', KEYS[2], ARGV[4])
if result then
  if not late then redis.call('HSET', KEYS[1], 'ep', ARGV[1], 'pa', ARGV[2], 'of', ARGV[3]) end
  return answer('repeated', result)
end
if late then return answer('stale', state[3]) end
if (state[4] or '0') ~= ARGV[5] then return {'raced', state[4] or '0'} end

-- where each hash's fields are among the arguments
local steps, at = {}, 11
for i = 6, #KEYS do
  local deletes, sets = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  steps[i] = {at + 2, deletes, at + 2 + deletes, sets}
  at = at + 2 + deletes + 2 * sets
end

-- how many pins, and how many others, a scope has more than before
local function more(key, first, deletes, fields, sets)
  local count = {['0'] = 0, ['1'] = 0}
  local function away(field)
    local flag = string.sub(redis.call('HGET', key, field) or '', 1, 1)
    if count[flag] then count[flag] = count[flag] - 1 end
  end
  for n = first, first + deletes - 1 do away(ARGV[n]) end
  for n = fields, fields + 2 * sets - 1, 2 do
    away(ARGV[n])
    local flag = string.sub(ARGV[n + 1], 1, 1)
    count[flag] = count[flag] + 1
  end
  return count['1'], count['0']
end
for i = 6, 5 + tonumber(ARGV[10]) do
  local pinned, unpinned = more(KEYS[i], unpack(steps[i]))
  -- the whole scope is counted only where it grows
  if pinned > 0 or unpinned > 0 then
    for _, entry in ipairs(redis.call('HVALS', KEYS[i])) do
      if string.sub(entry, 1, 1) == '1' then pinned = pinned + 1 else unpinned = unpinned + 1 end
    end
    if pinned > PINNED or unpinned > UNPINNED then return {'caps', pinned .. ' ' .. unpinned} end
  end
end

local function each(command, key, first, count)
  for n = first, first + count - 1, BLOCK do
    redis.call(command, key, unpack(ARGV, n, math.min(n + BLOCK, first + count) - 1))
  end
end
for i = 6, #KEYS do
  local first, deletes, fields, sets = unpack(steps[i])
  each('HDEL', KEYS[i], first, deletes)
  each('HSET', KEYS[i], fields, 2 * sets)
end

redis.call('HSET', KEYS[1], 'ep', ARGV[1], 'pa', ARGV[2], 'of', ARGV[3], 'v', ARGV[6], 'n', ARGV[7])
redis.call('HSET', KEYS[2], ARGV[4], ARGV[8])
if redis.call('RPUSH', KEYS[3], ARGV[4]) > REMEMBERED then
  redis.call('HDEL', KEYS[2], redis.call('LPOP', KEYS[3]))
end
redis.call('HSET', KEYS[4], ARGV[4], ARGV[9])
redis.call('PUBLISH', KEYS[5], ARGV[8])
return answer('applied', ARGV[8])
