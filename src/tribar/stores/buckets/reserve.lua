-- Take everything or nothing; the same algorithm as meters.py, operation for operation.
-- KEYS: one a meter. ARGV: one text of words (many arguments would cost the client more than the script), which are the
-- time ("-": this server's, the only clock that all gateways share), the ticket, then kind, limit, period, offset and
-- amount of each meter.
-- Returns {refused indices from 0}, then remaining, reset, wait and window of each meter as text.
local ROUNDING = 1e-6
local SPARE_MS = 60000 -- how much longer a key lives than it means anything
local words = {}
for word in string.gmatch(ARGV[1], '%S+') do words[#words + 1] = word end
local now = tonumber(words[1])
if not now then
  local t = redis.call('TIME')
  now = tonumber(t[1]) + tonumber(t[2]) / 1000000
end
local ticket = words[2]

local function text(x) return string.format('%.17g', x) end

local function meter_at(i)
  local at = 3 + (i - 1) * 5
  return words[at], tonumber(words[at + 1]), tonumber(words[at + 2]), tonumber(words[at + 3]), tonumber(words[at + 4])
end

local function window_at(period, offset)
  local index = math.floor((now + offset) / period)
  return index, (index + 1) * period - offset
end

-- remaining, reset, wait, window, whether the amount can be had
local function level(i, amount)
  local kind, limit, period, offset = meter_at(i)
  if kind == 'rate' then
    local reset = math.max(tonumber(redis.call('GET', KEYS[i]) or now), now) - now
    local wait = reset + amount * period / limit - period
    local is_met = amount == 0 or wait <= ROUNDING
    return limit - reset * limit / period, reset, is_met and 0 or wait, 0, is_met
  elseif kind == 'quota' then
    local index, ends = window_at(period, offset)
    local held = redis.call('HMGET', KEYS[i], 'window', 'used')
    local used = (held[1] and tonumber(held[1]) == index) and tonumber(held[2]) or 0
    local is_met = amount == 0 or used + amount <= limit
    return limit - used, ends - now, is_met and 0 or ends - now, index, is_met
  end
  local n_held = redis.call('ZCOUNT', KEYS[i], '(' .. text(now), '+inf')
  return limit - n_held, 0, 0, 0, n_held + amount <= limit
end

local function take(i)
  local kind, limit, period, offset, amount = meter_at(i)
  if amount == 0 then return end
  if kind == 'rate' then
    local full_at = math.max(tonumber(redis.call('GET', KEYS[i]) or now), now) + amount * period / limit
    redis.call('SET', KEYS[i], text(full_at))
    redis.call('PEXPIRE', KEYS[i], math.ceil((full_at - now) * 1000) + SPARE_MS)
  elseif kind == 'quota' then
    local index, ends = window_at(period, offset)
    local held = redis.call('HGET', KEYS[i], 'window')
    if not held or tonumber(held) ~= index then
      redis.call('DEL', KEYS[i])
      redis.call('HSET', KEYS[i], 'window', text(index), 'used', 0)
    end
    redis.call('HINCRBY', KEYS[i], 'used', amount)
    redis.call('PEXPIRE', KEYS[i], math.ceil((ends - now) * 1000) + SPARE_MS)
  else
    redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', text(now))
    redis.call('ZADD', KEYS[i], text(now + period), ticket)
    redis.call('PEXPIRE', KEYS[i], math.ceil(period * 1000) + SPARE_MS)
  end
end

local refused, levels = {}, {}
for i = 1, #KEYS do
  local _, _, _, _, amount = meter_at(i)
  local remaining, reset, wait, window, is_met = level(i, amount)
  levels[i] = {text(remaining), text(reset), text(wait), text(window)}
  if not is_met then refused[#refused + 1] = i - 1 end
end
if #refused == 0 then
  for i = 1, #KEYS do take(i) end
  for i = 1, #KEYS do
    local remaining, reset, wait, window = level(i, 0)
    levels[i] = {text(remaining), text(reset), text(wait), text(window)}
  end
end
return {refused, levels}
