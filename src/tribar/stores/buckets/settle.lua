-- Give back, or take more; the same algorithm as meters.py.
-- KEYS: one a meter. ARGV: one text of words: the time ("-": this server's), the ticket, then kind, limit, period,
-- offset, refund and window of each meter. A permit with the refund 0 is renewed.
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

for i = 1, #KEYS do
  local at = 3 + (i - 1) * 6
  local kind, limit, period = words[at], tonumber(words[at + 1]), tonumber(words[at + 2])
  local offset, refund, window = tonumber(words[at + 3]), tonumber(words[at + 4]), tonumber(words[at + 5])
  if kind == 'rate' then
    local full_at = math.max(tonumber(redis.call('GET', KEYS[i]) or now), now) - refund * period / limit
    if full_at > now then
      redis.call('SET', KEYS[i], text(full_at))
      redis.call('PEXPIRE', KEYS[i], math.ceil((full_at - now) * 1000) + SPARE_MS)
    else
      redis.call('DEL', KEYS[i])
    end
  elseif kind == 'quota' then
    local index = math.floor((now + offset) / period)
    if index == window then
      local held = redis.call('HMGET', KEYS[i], 'window', 'used')
      local used = (held[1] and tonumber(held[1]) == index) and tonumber(held[2]) or 0
      redis.call('HSET', KEYS[i], 'window', text(index), 'used', text(math.max(0, used - refund)))
      redis.call('PEXPIRE', KEYS[i], math.ceil(((index + 1) * period - offset - now) * 1000) + SPARE_MS)
    end
  elseif refund > 0 then
    redis.call('ZREM', KEYS[i], ticket)
  else
    redis.call('ZADD', KEYS[i], text(now + period), ticket)
    redis.call('PEXPIRE', KEYS[i], math.ceil(period * 1000) + SPARE_MS)
  end
end
return 1
