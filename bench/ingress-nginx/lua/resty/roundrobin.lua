-- Round robin over nodes of equal weight, with the interface of the library that ingress-nginx's balancer calls.
local _M = {}
_M.__index = _M

local function names_of(nodes)
  local names = {}
  for name in pairs(nodes) do
    names[#names + 1] = name
  end
  table.sort(names)
  return names
end

function _M.new(_, nodes)
  local balancer = setmetatable({}, _M)
  balancer:reinit(nodes)
  return balancer
end

function _M.reinit(self, nodes)
  self.nodes = nodes
  self.names = names_of(nodes)
  -- Workers begin at different nodes.
  self.last = #self.names > 0 and math.random(#self.names) or 0
end

function _M.find(self)
  local count = #self.names
  if count == 0 then
    return nil
  end
  self.last = self.last % count + 1
  return self.names[self.last]
end

return _M
