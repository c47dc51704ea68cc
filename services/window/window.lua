-- One recorded turn: refuse what repeats or contradicts, apply it, let the oldest turns leave, close chunks.
-- The rules are those of services/window/policy.py; tests/integration/test_window_model.py holds both together.
--
-- KEYS  1 :w  2 :m  3 :t  4 :i  5 :e  6 :l  7 :p  8 :k  9 :o:window  10 :to  11 :mu
-- ARGV  1 epoch  2 partition  3 offset  4 event id  5 turn id  6 digest  7 at (ms)  8 at (text)  9 level or ''
--       10 model or ''  11 context window or ''  12 chat as JSON  13 user id or ''  14 chat id
--       15 messages per chunk  16 tokens per chunk  17 count  18 tokens  19 first message id  20 last message id
--       21 offset of the chat's event before this one in the same batch, or ''
--       22 generation that the chat must have, or ''  23 outbox field and 24 entry of a memory command, or '', ''
--       25.. per message: id, JSON
-- Returns {status, detail, field, value, ...}: applied | repeated | partition | order | turn | message | stale | deleted;
-- a detail of it (of the first two the turn's first time in ms); then the outbox.
local LEVELS = @LEVELS@ -- level -> {tokens, messages}
local NAMESPACE = '@NAMESPACE@'

local state = redis.call('HMGET', KEYS[1], 'ep', 'pa', 'of', 'g', 'n', 'v', 'lm', 'lt', 'pm', 'pt', 'ci', 'lv', 'cw', 'md', 'u', 'tn', 'co', 'dl')
local function number(i) return tonumber(state[i] or '0') end
local same_log = state[1] == ARGV[1]

local function answer(status, detail)
  local reply = redis.call('HGETALL', KEYS[9])
  table.insert(reply, 1, status)
  table.insert(reply, 2, detail)
  return reply
end

if state[18] then
  -- from before the deletion and delivered again: what it said is gone, its usage is booked all the same
  local before = same_log and state[2] == ARGV[2] and tonumber(ARGV[3]) <= number(3)
  if before then return answer('repeated', ARGV[7]) end
  return {'deleted', ''}
end
if same_log and state[2] ~= ARGV[2] then return {'partition', state[2]} end
if ARGV[22] ~= '' and (state[4] or '0') ~= ARGV[22] then return {'order', ''} end
if ARGV[21] ~= '' and not (same_log and number(3) >= tonumber(ARGV[21])) then
  -- the call before this one did not run (the script was not loaded yet, no memory): the batch will be run again
  return {'order', ''}
end
-- what changes nothing moves the watermark all the same: the next call of a batch looks for it
local function passed()
  if not same_log or tonumber(ARGV[3]) > number(3) then
    redis.call('HSET', KEYS[1], 'ep', ARGV[1], 'pa', ARGV[2], 'of', ARGV[3])
  end
end
-- a turn that comes again is booked under the time of the first one: the ledger looks for it in that month
local function first_time(turn) return string.match(turn, '^%S+ %d+ %d+ (%d+)') end
local known = redis.call('HGET', KEYS[3], ARGV[5])
local same_turn = known and string.sub(known, 1, #ARGV[6]) == ARGV[6]
-- a turn that says the same because an event regenerated it (digest~event): that event books it
local own = same_turn and string.sub(known, #ARGV[6] + 1, #ARGV[6] + 1) == ' '
if redis.call('SISMEMBER', KEYS[5], ARGV[4]) == 1 then
  passed()
  -- an event id that comes back with another turn changes nothing, and its usage is nobody's
  -- what was taken back was paid for all the same
  local gone = not own and redis.call('SISMEMBER', KEYS[5], ARGV[5] .. ' ' .. ARGV[6]) == 1
  return answer('repeated', own and first_time(known) or gone and ARGV[7] or 'other')
end
if known then
  passed()
  if not same_turn then return {'turn', ''} end
  redis.call('SADD', KEYS[5], ARGV[4])
  return answer('repeated', own and first_time(known) or 'other')
end

local count, ids = tonumber(ARGV[17]), {}
for i = 1, count do ids[i] = ARGV[23 + 2 * i] end
local taken = redis.call('HMGET', KEYS[4], unpack(ids))
for i = 1, count do
  if taken[i] then
    passed()
    return {'message', ids[i]}
  end
end
if same_log and tonumber(ARGV[3]) <= number(3) then return {'stale', state[3]} end

-- apply
local first = number(5)
local messages, numbers = {}, {}
for i = 1, count do
  local seq = first + i - 1
  messages[2 * i - 1], messages[2 * i] = seq, ARGV[24 + 2 * i]
  numbers[2 * i - 1], numbers[2 * i] = ids[i], seq
end
redis.call('SADD', KEYS[5], ARGV[4])
redis.call('HSET', KEYS[3], ARGV[5], table.concat({ARGV[6], first, count, ARGV[7], unpack(ids)}, ' '))
redis.call('RPUSH', KEYS[10], ARGV[5])
if ARGV[23] ~= '' then
  redis.call('HSET', KEYS[9], ARGV[23], ARGV[24])
  redis.call('HSET', KEYS[11], ARGV[5], ARGV[13])
end
redis.call('HSET', KEYS[2], unpack(messages))
redis.call('HSET', KEYS[4], unpack(numbers))
redis.call('RPUSH', KEYS[6], table.concat({first, count, ARGV[18], ARGV[7], ARGV[19], ARGV[20]}, ' '))

local level = ARGV[9] ~= '' and ARGV[9] or state[12] or '@DEFAULT_LEVEL@'
local model, context = state[14] or '', state[13] or ''
if ARGV[10] ~= '' then
  if ARGV[11] ~= '' or ARGV[10] ~= model then context = ARGV[11] end
  model = ARGV[10]
end
local user = state[15]
if not user or user == '' then user = ARGV[13] end

-- leave: whole turns, oldest first, the newest always stays (W1, W4)
local max_tokens, max_messages = LEVELS[level][1], LEVELS[level][2]
if context ~= '' then max_tokens = math.min(max_tokens, math.floor(tonumber(context) / 4)) end
local live_messages, live_tokens = number(7) + count, number(8) + tonumber(ARGV[18])
local pending_messages, pending_tokens = number(9), number(10)
local function split(item)
  return string.match(item, '^(%d+) (%d+) (%d+) (%d+) (%S+) (%S+)$')
end
-- below this number a live message is in a chunk as well: something was taken back, and the window was filled again
local covered = number(17)
local function forget(first_seq, n)
  for _, chunk in ipairs(redis.call('HVALS', KEYS[8])) do
    local span = cjson.decode(chunk).span
    if span.first_seq <= first_seq and first_seq <= span.last_seq then return end
  end
  for seq = first_seq, first_seq + n - 1 do redis.call('HDEL', KEYS[2], seq) end
end
while (live_tokens > max_tokens or live_messages > max_messages) and live_messages > count do
  local item = redis.call('LPOP', KEYS[6])
  local first_seq, n, tokens = split(item)
  live_messages, live_tokens = live_messages - n, live_tokens - tokens
  if tonumber(first_seq) < covered then
    forget(tonumber(first_seq), tonumber(n))
  else
    redis.call('RPUSH', KEYS[7], item)
    pending_messages, pending_tokens = pending_messages + n, pending_tokens + tokens
  end
end

-- close chunks: whole turns, oldest first, as soon as there is enough (S1)
local function uuid5(name)
  local hex = redis.sha1hex(NAMESPACE .. name)
  local variant = string.format('%x', 8 + tonumber(string.sub(hex, 17, 17), 16) % 4)
  return table.concat({string.sub(hex, 1, 8), string.sub(hex, 9, 12), '5' .. string.sub(hex, 14, 16),
    variant .. string.sub(hex, 18, 20), string.sub(hex, 21, 32)}, '-')
end
local chunk_messages, chunk_tokens = tonumber(ARGV[15]), tonumber(ARGV[16])
local generation, index = number(4), number(11)
if pending_messages >= chunk_messages or pending_tokens >= chunk_tokens then
  local turns, start, n_sum, t_sum = redis.call('LRANGE', KEYS[7], 0, -1), 1, 0, 0
  for at = 1, #turns do
    local first_seq, n, tokens, _, _, last_id = split(turns[at])
    n_sum, t_sum = n_sum + n, t_sum + tokens
    if n_sum >= chunk_messages or t_sum >= chunk_tokens then
      local from, _, _, _, first_id = split(turns[start])
      local last_seq = first_seq + n - 1
      local id = uuid5(table.concat({'chunk', ARGV[14], generation, from, last_seq}, '\31'))
      local event = table.concat({
        '{"type":"chunk.closed","id":"', id, '","at":"', ARGV[8], '","chat":', ARGV[12],
        user ~= '' and ',"user_id":' .. cjson.encode(user) or '',
        ',"generation":', generation, ',"index":', index,
        ',"span":{"first_seq":', from, ',"last_seq":', last_seq,
        ',"first_message":', cjson.encode(first_id), ',"last_message":', cjson.encode(last_id), ',"messages":', n_sum,
        '},"tokens":', t_sum, ',"level":"', level, '"}'})
      redis.call('HSET', KEYS[8], id, event)
      redis.call('HSET', KEYS[9], id, cjson.encode({'@CHUNKS_TOPIC@', ARGV[14], event}))
      index = index + 1
      pending_messages, pending_tokens = pending_messages - n_sum, pending_tokens - t_sum
      start, n_sum, t_sum = at + 1, 0, 0
    end
  end
  redis.call('LTRIM', KEYS[7], start - 1, -1)
end

local next_seq, version = first + count, number(6) + 1
redis.call('HSET', KEYS[1], 'ep', ARGV[1], 'pa', ARGV[2], 'of', ARGV[3], 'g', generation, 'n', next_seq, 'v', version,
  'lf', next_seq - live_messages, 'lm', live_messages, 'lt', live_tokens,
  'pf', next_seq - live_messages - pending_messages, 'pm', pending_messages, 'pt', pending_tokens,
  'ci', index, 'lv', level, 'cw', context, 'md', model, 'cj', ARGV[12], 'u', user, 'tn', number(16) + 1, 'at', ARGV[7])
redis.call('PUBLISH', '{c:' .. ARGV[14] .. '}:live', table.concat({'{"type":"window","version":', version,
  ',"live_messages":', live_messages, ',"pending_messages":', redis.call('HLEN', KEYS[2]) - live_messages, '}'}))
return answer('applied', ARGV[7])
