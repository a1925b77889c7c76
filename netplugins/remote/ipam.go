package main

import (
	"fmt"
	"net/netip"
)

// choose returns the addresses of a new endpoint, at most one of each family: the wanted addresses, and for a family
// without one the next free address after last in the first pool with a free address. used are the
// addresses of other endpoints. Without pools, the driver assigns the missing addresses.
func (s *settings) choose(
	wanted []string, used map[netip.Addr]bool, last map[string]netip.Addr,
) ([]netip.Prefix, error) {
	taken := s.reserved()
	for ip := range used {
		taken[ip] = true
	}
	chosen, err := s.takeWanted(wanted, taken)
	if err != nil {
		return nil, err
	}
	var full [2]netip.Prefix
	for _, p := range s.IPAM {
		i := family(p.Subnet.Addr())
		if chosen[i].IsValid() {
			continue
		}
		ip, ok := p.next(taken, last[p.Subnet.String()])
		if !ok {
			full[i] = p.Subnet
			continue
		}
		chosen[i], last[p.Subnet.String()] = netip.PrefixFrom(ip, p.Subnet.Bits()), ip
	}
	return present(chosen, full)
}

// takeWanted returns the addresses that the pod asks for, IPv4 and IPv6.
func (s *settings) takeWanted(wanted []string, taken map[netip.Addr]bool) (chosen [2]netip.Prefix, err error) {
	for _, text := range wanted {
		prefix, err := s.wantedAddress(text)
		if err != nil {
			return chosen, err
		}
		i := family(prefix.Addr())
		switch {
		case chosen[i].IsValid():
			return chosen, fmt.Errorf("address %s: an endpoint has one address of a family", text)
		case taken[prefix.Addr()]:
			return chosen, fmt.Errorf("address %s is taken", prefix.Addr())
		}
		chosen[i] = prefix
	}
	return chosen, nil
}

// present lists the chosen addresses. A family without one is an error if its pools are full.
func present(chosen, full [2]netip.Prefix) (all []netip.Prefix, err error) {
	for i, prefix := range chosen {
		switch {
		case prefix.IsValid():
			all = append(all, prefix)
		case full[i].IsValid():
			return nil, fmt.Errorf("no address of %s is free", full[i])
		}
	}
	return all, nil
}

// family is 0 for IPv4, 1 for IPv6.
func family(ip netip.Addr) int {
	if ip.Is4() {
		return 0
	}
	return 1
}

// wantedAddress reads an address that a pod asks for. Its prefix length is its pool's.
func (s *settings) wantedAddress(text string) (netip.Prefix, error) {
	ip, err := addressOf(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	for _, p := range s.IPAM {
		if p.Subnet.Contains(ip) {
			return netip.PrefixFrom(ip, p.Subnet.Bits()), nil
		}
	}
	if len(s.IPAM) > 0 {
		return netip.Prefix{}, fmt.Errorf("address %s is in no subnet of the network", ip)
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, fmt.Errorf("address %s: want CIDR notation, because the network has no ipam", text)
	}
	return prefix, nil
}

// reserved are the addresses of the network that no pod gets.
func (s *settings) reserved() map[netip.Addr]bool {
	taken := make(map[netip.Addr]bool)
	for _, p := range s.IPAM {
		for _, text := range p.AuxAddresses {
			if ip, err := addressOf(text); err == nil {
				taken[ip] = true
			}
		}
		if ip, err := addressOf(p.Gateway); err == nil {
			taken[ip] = true
		}
		subnet := p.Subnet.Masked()
		if subnet.Addr().BitLen()-subnet.Bits() > 1 { // not of a pair of routers (RFC 3021, RFC 6164)
			taken[subnet.Addr()] = true
			if subnet.Addr().Is4() {
				taken[broadcast(subnet)] = true
			}
		}
	}
	return taken
}

// broadcast is the last address of an IPv4 subnet.
func broadcast(subnet netip.Prefix) netip.Addr {
	ip := subnet.Addr().As4()
	for bit := subnet.Bits(); bit < 32; bit++ {
		ip[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(ip)
}

// next is the first free address after last, and from the start of the range again.
func (p pool) next(taken map[netip.Addr]bool, last netip.Addr) (netip.Addr, bool) {
	from := p.Range
	if !from.IsValid() {
		from = p.Subnet
	}
	from = from.Masked()
	for _, ip := range []netip.Addr{last.Next(), from.Addr()} { // without a last address, Next is in no subnet
		for ; from.Contains(ip); ip = ip.Next() {
			if !taken[ip] {
				return ip, true
			}
		}
	}
	return netip.Addr{}, false
}
