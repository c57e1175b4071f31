-- One request of a session, at one moment. All checks come before the first write, because Redis takes nothing back. The only
-- writes before them are about the session: its connection and its deadline.
--
-- KEYS: 1 meta, 2 sessions by deadline, 3 the session, 4 its nodes, 5 empty containers; then those that the operation names.
-- ARGV: 1 the incarnation, 2 the session, 3 its secret, 4 the number of its connection, 5 the operation; then its arguments.
--
-- A node is {data, czxid, version, owner, pzxid, counter, is it a container, children, watch}, in the hash of its directory. A watch is
-- "kind session:number". The only watch of a node is in the node; several are a set of their own, and the node has SEVERAL in its place.
-- The reply is {status, own events, result}.

local replication = redis.call('INFO', 'replication')
local identity = ARGV[1]
-- A whole line of it: plain text is found sooner than a pattern.
if not string.find(replication, '\nmaster_replid:' .. identity .. '\r', 1, true) then return {'incarnation'} end

-- Until it has another history, a primary that became a replica would answer what only reads.
if not string.find(replication, 'role:master\r', 1, true) then return {err = 'READONLY it has become a replica'} end

-- Where replicas are needed to write, Redis counts them once a second, and not while it stands still. What it answers then would come after
-- another server has taken over. So they are counted here: those that were heard of within three seconds.
local LAG = 2
if string.find(replication, 'min_slaves_good_slaves:', 1, true) then
    local counted = string.match(replication, 'min_slaves_good_slaves:(%d+)')
    local good = 0
    for lag in string.gmatch(replication, 'state=online,offset=%d+,lag=(%-?%d+)') do
        if tonumber(lag) <= LAG then good = good + 1 end
    end
    if good < math.max(1, tonumber(counted)) then
        return {err = 'NOREPLICAS a replica that is needed to write was not heard of for more than ' .. LAG .. ' s'}
    end
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local session, secret, connection, op = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local META, SESSIONS, OWN, EMPTY = KEYS[1], KEYS[2], KEYS[4], KEYS[5]
local DEAD = '-1'
local SEVERAL = '*'
-- Another one for each change of what is stored, and where.
local LAYOUT = '2'
local CHANNELS = string.sub(META, 1, -5) .. 'events:'

-- Lua prints large numbers with an exponent.
local function int(number) return string.format('%.0f', number) end

if op == 'open' then
    local asked, longest, margin, is_new = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9] == '1'
    local meta = redis.call('HMGET', META, 'i', 'g', 't', 'v', 'gs')
    -- A client that keeps watches elsewhere would be told of nothing, and tell nobody.
    if meta[1] and meta[4] ~= LAYOUT then
        return {err = 'ERR its keys are of layout ' .. (meta[4] or '1') .. ', and this Lockkeeper knows layout ' .. LAYOUT ..
            ': use the same Lockkeeper everywhere, or another database'}
    end
    -- Sent twice, the other one has opened it: what it has since is not touched.
    if type(redis.pcall('HGET', KEYS[3], 's')) == 'string' then return {'over'} end
    -- Redis looks at each command whether the user may use it, and takes nothing back: so all are tried while nothing is written yet. The first
    -- one that writes is one for which Redis looks whether it has the memory.
    for _, command in ipairs({
        {'SADD', OWN, ''}, {'SMEMBERS', OWN}, {'SRANDMEMBER', OWN, 1}, {'SREM', OWN, ''}, {'HGET', KEYS[3], 's'}, {'HKEYS', KEYS[3]},
        {'HDEL', KEYS[3], 's'}, {'DEL', OWN}, {'ZSCORE', SESSIONS, session}, {'ZCOUNT', SESSIONS, 0, 0}, {'ZRANGEBYSCORE', SESSIONS, 1, 0},
        {'ZREM', SESSIONS, session}, {'PUBLISH', CHANNELS .. session, ''}}) do
        local answer = redis.pcall(unpack(command))
        local refusal = type(answer) == 'table' and answer.err
        local is_right = false
        for _, words in ipairs({'NOPERM', 'ACL failure', 'The user executing the script'}) do
            is_right = is_right or refusal and string.find(refusal, words, 1, true)
        end
        if is_right then
            refusal = 'ERR its user may not use ' .. command[1] .. ' as it is needed: ' .. refusal
        end
        if refusal then
            redis.pcall('DEL', OWN)
            return {err = refusal}
        end
    end
    local free = tonumber(meta[2] or '0')
    longest = tonumber(meta[3] or ARGV[7])
    if meta[1] ~= identity then
        -- Data may be lost: nobody of before holds a session, and nobody gets one while somebody of before may still think so.
        free = now + longest + margin
        if is_new and not meta[1] then free = 0 end
        for _, other in ipairs(redis.call('ZRANGEBYSCORE', SESSIONS, '0', '+inf')) do
            redis.call('ZADD', SESSIONS, DEAD, other)
        end
        redis.call('HSET', META, 'i', identity, 'g', int(free), 't', int(longest), 'v', LAYOUT)
        redis.call('HDEL', META, 'gs')
    elseif free > now + longest + margin then
        -- The clock was set back since, and may be set right again. A whole pause from this sight on is enough.
        local seen = tonumber(meta[5] or '0')
        if seen == 0 or seen > now then
            seen = now
            redis.call('HSET', META, 'gs', int(now))
        end
        free = seen + longest + margin
        if free <= now then
            redis.call('HSET', META, 'g', int(free))
            redis.call('HDEL', META, 'gs')
        end
    elseif meta[5] then
        redis.call('HDEL', META, 'gs')
    end
    if now < free then return {'grace', {}, int(free - now)} end
    -- How long a session is given between the first sight and the second: the strictest client decides, for all.
    local strictest = math.max(tonumber(ARGV[10] or '2'), tonumber(redis.call('HGET', META, 'd') or '0'))
    redis.call('HSET', META, 'd', int(strictest))
    local granted = int(math.min(asked, longest))
    redis.call('HSET', KEYS[3], 's', secret, 'i', identity, 't', granted, 'c', ARGV[4])
    redis.call('ZADD', SESSIONS, int(now + granted), session)
    return {'ok', {}, granted}
end

local deadline = tonumber(redis.call('ZSCORE', SESSIONS, session) or DEAD)
local mine = redis.call('HMGET', KEYS[3], 's', 'i', 't', 'c')
if mine[1] ~= secret or mine[2] ~= identity then return {'over'} end
-- What an earlier connection still brings comes too late: its outcome was looked up since.
local last = tonumber(mine[4])
if connection < last then return {'moved'} end
if deadline >= 0 then
    if connection > last then redis.call('HSET', KEYS[3], 'c', ARGV[4]) end
    -- It is moved a little further than is promised, so that not each request must move it. A clock that was set back moves it, too.
    local promised, more = now + mine[3], mine[3] / 64
    if deadline < promised or deadline > promised + more then
        redis.call('ZADD', SESSIONS, int(promised + more), session)
    end
elseif op ~= 'reap' or ARGV[6] ~= session then
    -- A session that was closed may only remove what is left of it.
    return {'over'}
end

-- No deadline of a session that lasts so long is as far ahead.
local function beyond(lasts) return now + lasts + lasts / 64 + 1000000 end

local function split(path) return string.match(path, '^(.*)/([^/]*)$') end

-- What this request has read, by key and name; false is a node that is not there. And the last change of all that.
local seen, last_id, events, result = {}, 0, {}, {}

local function get(key, name)
    local row = seen[key]
    if not row then
        row = {}
        seen[key] = row
    end
    local node = row[name]
    if node == nil then
        local packed = redis.call('HGET', key, name)
        node = packed and cmsgpack.unpack(packed) or false
        -- The root is always there.
        if not node and name == '' then node = {'', 0, 0, '', 0, 0, 0, 0} end
        if node then last_id = math.max(last_id, node[2], node[5]) end
        row[name] = node
    end
    return node
end

local function is_dead(watch)
    local deadline = redis.call('ZSCORE', SESSIONS, string.match(watch, '^.(%d+):') or '')
    return tonumber(deadline or DEAD) < 0
end

-- It changes nothing that is seen of a node.
local function keep(key, name, node, watch)
    node[9] = watch
    redis.call('HSET', key, name, cmsgpack.pack(node))
end

-- What a dead session watches stays with nodes that never change. So whoever watches looks at one or two of the others.
local function arm(key, name, node, set, watch)
    local known = node[9]
    if known == SEVERAL then
        for _, other in ipairs(redis.call('SRANDMEMBER', set, 2)) do
            if is_dead(other) then redis.call('SREM', set, other) end
        end
        redis.call('SADD', set, watch)
    elseif not known or is_dead(known) then
        keep(key, name, node, watch)
    elseif known ~= watch then
        redis.call('SADD', set, known, watch)
        keep(key, name, node, SEVERAL)
    end
end

local function shown(node)
    return node and {node[1], node[2], node[3], node[4], node[5], node[8]}
end

-- Up to so many nodes of a session that is dead; without any it is forgotten.
local function remains(victim, record, nodes)
    local paths = redis.call('SRANDMEMBER', nodes, 200)
    if #paths == 0 then
        redis.call('ZREM', SESSIONS, victim)
        redis.call('DEL', record, nodes)
    end
    return paths
end

if op == 'read' then
    local key = 6
    for at = 6, #ARGV, 2 do
        local _, name = split(ARGV[at + 1])
        local node = get(KEYS[key], name)
        if node and ARGV[at] == 'c' then
            result[#result + 1] = redis.call('HKEYS', KEYS[key + 1])
        else
            result[#result + 1] = shown(node)
        end
        key = key + 2
    end
elseif op == 'watch' then
    local kind, path, number = ARGV[6], ARGV[7], ARGV[8]
    local _, name = split(path)
    local node = get(KEYS[6], name)
    if not node then return {'refused', {}, {0, 'no node'}} end
    arm(KEYS[6], name, node, KEYS[7], kind .. session .. ':' .. number)
    result = {shown(node), kind == 'c' and redis.call('HKEYS', KEYS[8]) or {}}
elseif op == 'unwatch' then
    local watch = ARGV[6] .. session .. ':' .. ARGV[8]
    local _, name = split(ARGV[7])
    local node = get(KEYS[6], name)
    if node and node[9] == SEVERAL then
        redis.call('SREM', KEYS[7], watch)
    elseif node and node[9] == watch then
        keep(KEYS[6], name, node)
    end
elseif op == 'rearm' then
    -- What was seen when each watch was armed; what has changed since is told now.
    local key = 6
    for at = 6, #ARGV, 5 do
        local kind, path, number, czxid, last = unpack(ARGV, at, at + 4)
        local _, name = split(path)
        local node = get(KEYS[key], name)
        if not node or node[2] ~= tonumber(czxid) then
            events[#events + 1] = 'x' .. number
        elseif (kind == 'c' and node[5] or node[3]) ~= tonumber(last) then
            events[#events + 1] = 'c' .. number
        else
            arm(KEYS[key], name, node, KEYS[key + 1], kind .. session .. ':' .. number)
        end
        key = key + 2
    end
elseif op == 'ephemerals' then
    for _, path in ipairs(redis.call('SMEMBERS', OWN)) do
        if string.sub(path, 1, #ARGV[6]) == ARGV[6] then result[#result + 1] = path end
    end
elseif op == 'touch' then
    -- Also who is late, and which containers have been empty for long. One session at a time is told: it removes them.
    local meta = redis.call('HMGET', META, 'r', 't')
    local resting = tonumber(meta[1] or '0')
    -- The clock may have been set back since.
    if resting <= now or resting > now + 1000000 then
        -- Those that died since come before the rest of those that died long ago.
        -- Each waits for its second sight where it stands, so few of them would hold up all others.
        local function some(key, least, most, list, count)
            for _, one in ipairs(redis.call('ZRANGEBYSCORE', key, least, most, 'LIMIT', 0, count)) do list[#list + 1] = one end
            return list
        end
        local late = some(SESSIONS, '0', int(now), {}, 200)
        some(SESSIONS, '-inf', '(0', late, 200)
        some(SESSIONS, int(beyond(tonumber(meta[2] or '0'))), '+inf', late, 200)
        local empty = some(EMPTY, '-inf', int(now - ARGV[6]), {}, 1000)
        some(EMPTY, int(now + 1000000), '+inf', empty, 1000)
        if #late + #empty > 0 then
            redis.call('HSET', META, 'r', int(now + 1000000))
            resting = now + 1000000
        end
        result = {late, empty}
    else
        result = {{}, {}}
    end
    -- When to look again: as the next session is due, or when those that are late are told of again.
    local after = redis.call('ZRANGEBYSCORE', SESSIONS, '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local again = tonumber(after[2] or '0')
    if redis.call('ZCOUNT', SESSIONS, '-inf', int(now)) > 0 then again = math.min(again, math.max(resting, now)) end
    result[3] = int(math.max(again - now, 0) + 1000)
elseif op == 'bury' then
    -- Whoever is late is marked at first sight, and dead at a second one later, so that one step of the clock ends no session. The mark
    -- is of one deadline, which a request of whoever is late moves: a mark of before counts for nothing, wherever the clock has gone since.
    local victim, record, nodes = ARGV[6], KEYS[6], KEYS[7]
    -- A deadline too far ahead is one of before the clock was set back. The clock may be set right again, and then the deadline is what it was.
    -- A timeout after the first sight, its session has asked anew, or holds nothing. It is late a timeout later, as any other.
    local due = tonumber(redis.call('ZSCORE', SESSIONS, victim) or now)
    local marked = redis.call('HMGET', record, 'm', 't', 'md')
    local lasts = tonumber(marked[2] or mine[3])
    local is_ahead = due >= beyond(lasts)
    if due >= now and not is_ahead then return {'ok', {}, {'0', {}}} end
    if due >= 0 then
        local tenths = is_ahead and 10 or tonumber(redis.call('HGET', META, 'd') or '2')
        local pause, of = lasts * tenths / 10, (is_ahead and '>' or '') .. int(due)
        if not marked[1] or marked[3] ~= of or tonumber(marked[1]) > now then
            redis.call('HSET', record, 'm', int(now), 'md', of)
            return {'ok', {}, {int(pause), {}}}
        end
        local left = tonumber(marked[1]) + pause - now
        if left > 0 then return {'ok', {}, {int(left), {}}} end
        redis.call('ZADD', SESSIONS, is_ahead and int(now + lasts) or DEAD, victim)
        if is_ahead then return {'ok', {}, {'0', {}}} end
    end
    result = {'0', remains(victim, record, nodes)}
elseif op == 'close' then
    redis.call('ZADD', SESSIONS, DEAD, session)
    result = remains(session, KEYS[3], OWN)
end
if op ~= 'multi' and op ~= 'reap' and op ~= 'collect' then return {'ok', events, result} end

-- Only what writes nodes comes here.
local changed, owned, several, told, spent = {}, {}, {}, {}, {}

-- What is written twice is stored once, as it is in the end.
local function put(key, name, node)
    seen[key][name] = node
    local names = changed[key]
    if not names then
        names = {}
        changed[key] = names
    end
    names[name] = true
end

-- Above all that was read, whatever the clock says: so ids rise in each directory.
local function id() return math.max(now, last_id + 1) end

-- The watch that is left to a node. What is in a set is read before the first write, as all that may be refused.
local function fire(node, set, kinds, change)
    local known, left = node[9], {}
    if not known then return nil end
    local watches = {known}
    if known == SEVERAL then watches = several[set] or redis.call('SMEMBERS', set) end
    for _, watch in ipairs(watches) do
        local kind, who, number = string.match(watch, '^(.)(%d+):(%d+)$')
        -- A member that a stranger wrote is no watch.
        if kind and string.find(kinds, kind, 1, true) then
            told[#told + 1] = {who, change .. number}
            if known == SEVERAL then spent[#spent + 1] = {set, watch} end
        else
            left[#left + 1] = watch
        end
    end
    if known ~= SEVERAL then return left[1] end
    several[set] = left
    return left[1] and SEVERAL
end

-- The keys of a write: the hash that the node is in, the one that its directory is in, their watches.
local function create(keys, path, data, kind)
    local dir, name = split(path)
    local _, directory = split(dir)
    directory = directory or ''
    local parent = get(keys[2], directory)
    if not parent then return 'no node' end
    if kind == 'sequential' then
        local number = string.format('%010.0f', parent[6])
        path, name = path .. number, name .. number
    end
    if get(keys[1], name) then return 'exists' end
    if parent[4] ~= '' then return 'ephemeral nodes have no children' end
    local is_mine = kind == 'sequential' or kind == 'ephemeral'
    local czxid, number = id(), parent[6]
    put(keys[1], name, {data, czxid, 0, is_mine and session or '', czxid, 0, kind == 'container' and 1 or 0, 0})
    local watch = fire(parent, keys[4], 'c', 'c')
    parent = {parent[1], parent[2], parent[3], '', czxid, math.min(number + 1, 2147483647), parent[7], parent[8] + 1, watch}
    put(keys[2], directory, parent)
    if is_mine then owned[#owned + 1] = {'SADD', session, path} end
    -- A ticket's own request tells of the directory, too: nobody need read it.
    local is_ticket = kind == 'sequential' and not ARGV[11]
    return nil, {path, czxid, number, is_ticket and shown(parent)}
end

local function at_version(node, version)
    if not node then return 'no node' end
    if version ~= -1 and version ~= node[3] then return 'version' end
end

-- With a czxid only that ticket: a request that comes twice must not remove one that has taken the name since. With data, the directory has
-- it from then on.
local function delete(keys, path, version, czxid, data)
    local dir, name = split(path)
    local _, directory = split(dir)
    directory = directory or ''
    local node = get(keys[1], name)
    if node and czxid ~= '' and node[2] ~= tonumber(czxid) then return 'no node' end
    local refusal = at_version(node, version) or node[8] > 0 and 'not empty'
    if refusal then return refusal end
    local parent = get(keys[2], directory)
    put(keys[1], name, false)
    fire(node, keys[3], 'dc', 'x')
    if parent then
        put(keys[2], directory, {
            data or parent[1], parent[2], data and parent[3] + 1 or parent[3], parent[4], id(), parent[6], parent[7], parent[8] - 1,
            fire(parent, keys[4], data and 'dc' or 'c', 'c')})
        if parent[7] == 1 and parent[8] == 1 then owned[#owned + 1] = {'EMPTY', dir} end
    end
    if node[4] ~= '' then owned[#owned + 1] = {'SREM', node[4], path} end
end

local function set(keys, path, data, version)
    local _, name = split(path)
    local node = get(keys[1], name)
    local refusal = at_version(node, version)
    if refusal then return refusal end
    local watch = fire(node, keys[3], 'd', 'c')
    put(keys[1], name, {data, node[2], node[3] + 1, node[4], node[5], node[6], node[7], node[8], watch})
end

local function commit()
    for key, names in pairs(changed) do
        for name in pairs(names) do
            local node = seen[key][name]
            if node then
                redis.call('HSET', key, name, cmsgpack.pack(node))
            else
                redis.call('HDEL', key, name)
            end
        end
    end
    for _, change in ipairs(owned) do
        if change[1] == 'EMPTY' then
            redis.call('ZADD', EMPTY, int(now), change[2])
        elseif change[2] == session then
            redis.call(change[1], OWN, change[3])
        else
            -- Another session's set, which has our hash tag.
            redis.call(change[1], string.sub(OWN, 1, -#session - 1) .. change[2], change[3])
        end
    end
    for _, watch in ipairs(spent) do redis.call('SREM', unpack(watch)) end
    -- A session is not told by a message of what it does itself: before 7.2 that would overtake the reply.
    for _, event in ipairs(told) do
        if event[1] == session then
            events[#events + 1] = event[2]
        else
            redis.call('PUBLISH', CHANNELS .. event[1], event[2])
        end
    end
end

if op == 'multi' then
    local at, key = 6, 6
    while ARGV[at] do
        local kind, path, data, version, czxid = unpack(ARGV, at, at + 4)
        version = tonumber(version)
        local keys = {KEYS[key], KEYS[key + 1], KEYS[key + 2], KEYS[key + 3]}
        local refusal, made
        local place = (at - 6) / 5
        if kind == 'delete' then
            refusal = delete(keys, path, version, czxid)
        elseif kind == 'leave' then
            -- It stands for two writes: the first of them is about the directory.
            local _, directory = split(split(path))
            refusal = at_version(get(keys[2], directory or ''), version)
            if not refusal then
                refusal, place = delete(keys, path, -1, czxid, data ~= '' and data), place + 1
            end
        elseif kind == 'set' then
            refusal = set(keys, path, data, version)
        elseif kind == 'check' then
            local _, name = split(path)
            refusal = at_version(get(keys[1], name), version)
        else
            refusal, made = create(keys, path, data, kind)
        end
        if refusal then return {'refused', {}, {place, refusal}} end
        if made then result[#result + 1] = made end
        at, key = at + 5, key + 4
    end
    commit()
elseif op == 'reap' then
    local victim, record, nodes = ARGV[6], KEYS[6], KEYS[7]
    if tonumber(redis.call('ZSCORE', SESSIONS, victim) or '0') < 0 then
        local key = 8
        for at = 7, #ARGV do
            local keys = {KEYS[key], KEYS[key + 1], KEYS[key + 2], KEYS[key + 3]}
            local _, name = split(ARGV[at])
            local node = get(keys[1], name)
            if node and node[4] == victim then delete(keys, ARGV[at], -1, '') end
            owned[#owned + 1] = {'SREM', victim, ARGV[at]}
            key = key + 4
        end
        commit()
        result = remains(victim, record, nodes)
    end
elseif op == 'collect' then
    local keys = {KEYS[6], KEYS[7], KEYS[8], KEYS[9]}
    local _, name = split(ARGV[6])
    local node = get(keys[1], name)
    if node and node[7] == 1 then delete(keys, ARGV[6], -1, '') end
    redis.call('ZREM', EMPTY, ARGV[6])
    commit()
end
return {'ok', events, result}
