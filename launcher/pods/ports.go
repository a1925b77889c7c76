package pods

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kurma.io/stager/launcher/networks"
)

// ErrPortTaken says that a port of the host that a pod publishes is in use.
var ErrPortTaken = errors.New("host port already used")

// checkPorts returns an error that names the holder of a port that the plan publishes: the plan itself, a pod that is
// live or could not be disconnected. The caller has the store's lock.
func checkPorts(plan Plan, all []*Pod) error {
	for i, port := range plan.Ports {
		if publishedBy(port, plan.Ports[:i]) {
			return fmt.Errorf("%w: %s is published twice by the pod", ErrPortTaken, describePort(port))
		}
	}
	for _, pod := range all {
		for _, port := range plan.Ports {
			switch {
			case !publishedBy(port, pod.Plan.Ports):
			case pod.alive():
				return fmt.Errorf("%w: %s is published by pod %q (%s)", ErrPortTaken, describePort(port), pod.Plan.Name,
					pod.Plan.UUID)
			case pod.lingers():
				return fmt.Errorf("%w: %s: %w", ErrPortTaken, describePort(port), pod.lingering())
			}
		}
	}
	return checkHostAddresses(plan.Ports)
}

// The ports that IANA leaves to whoever needs one (RFC 6335, 6).
const firstFree, countFree = 49152, networks.MaxPort + 1 - 49152

// ChoosePorts returns the mappings with a free port of the host for each that has none. Somebody else may take it
// before Create, which then returns ErrPortTaken.
func (s *Store) ChoosePorts(ports []networks.PortMapping) ([]networks.PortMapping, error) {
	unchosen := func(p networks.PortMapping) bool { return p.HostPort == 0 }
	if !slices.ContainsFunc(ports, unchosen) {
		return ports, nil
	}
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	ports = slices.Clone(ports)
	for i := range ports {
		if unchosen(ports[i]) {
			if ports[i].HostPort, err = freePort(ports[i], ports, all); err != nil {
				return nil, err
			}
		}
	}
	return ports, nil
}

// freePort returns a port of the host for the mapping that no process, none of the pods and none of the other mappings
// has.
func freePort(port networks.PortMapping, others []networks.PortMapping, all []*Pod) (uint, error) {
	taken := slices.Clone(others)
	for _, pod := range all {
		taken = append(taken, pod.Plan.Ports...)
	}
	start := rand.UintN(countFree)
	for n := range uint(countFree) {
		port.HostPort = firstFree + (start+n)%countFree
		if publishedBy(port, taken) {
			continue
		}
		err := checkListeners([]networks.PortMapping{port})
		if !errors.Is(err, ErrPortTaken) {
			return port.HostPort, err
		}
	}
	return 0, fmt.Errorf("%w: all from %d to %d", ErrPortTaken, firstFree, networks.MaxPort)
}

// checkHostAddresses returns an error that names a port on an address which is not one of the network namespace of this
// process.
func checkHostAddresses(ports []networks.PortMapping) error {
	for _, port := range ports {
		address, err := netip.ParseAddr(port.HostIP)
		if err != nil || address.IsUnspecified() {
			continue // every address
		}
		has, err := hasAddress(address)
		if err == nil && !has {
			err = fmt.Errorf("the host has no address %s", address)
		}
		if err != nil {
			return fmt.Errorf("port %s cannot be published: %w", port, err)
		}
	}
	return nil
}

// hasAddress reports whether sockets can have the address, which the sysctl ip_nonlocal_bind and routes of type local
// allow also for addresses that no link has, or a link has it that the kernel still tests (an IPv6 address that is
// tentative).
func hasAddress(address netip.Addr) (bool, error) {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: address.Unmap().AsSlice()})
	if err == nil {
		return true, socket.Close()
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("list the host's addresses: %w", err)
	}
	for _, one := range all {
		if prefix, err := netip.ParsePrefix(one.String()); err == nil && prefix.Addr() == address.Unmap() {
			return true, nil
		}
	}
	return false, nil
}

// publishedBy reports whether one of the mappings wants the port's port of the host.
func publishedBy(port networks.PortMapping, mappings []networks.PortMapping) bool {
	return slices.ContainsFunc(mappings, func(other networks.PortMapping) bool { return collide(port, other) })
}

func describePort(p networks.PortMapping) string {
	if p.HostIP != "" {
		return fmt.Sprintf("port %d/%s of %s", p.HostPort, p.Protocol, p.HostIP)
	}
	return fmt.Sprintf("port %d/%s", p.HostPort, p.Protocol)
}

// collide reports whether two mappings want the same port of the host.
func collide(a, b networks.PortMapping) bool {
	if a.HostPort != b.HostPort || a.Protocol != b.Protocol {
		return false
	}
	one, _ := netip.ParseAddr(a.HostIP) // invalid for "", which is every address
	other, _ := netip.ParseAddr(b.HostIP)
	return covers(one, other)
}

// covers reports whether two addresses to listen on have one in common; an invalid or unspecified
// one is every address.
func covers(a, b netip.Addr) bool {
	isAny := func(x netip.Addr) bool { return !x.IsValid() || x.IsUnspecified() }
	return isAny(a) || isAny(b) || a.Unmap() == b.Unmap()
}

// socket is a socket that listens.
type socket struct {
	address netip.Addr
	port    uint
	inode   string
}

// checkListeners looks for the ports among the sockets of this process's network namespace, and returns an error that
// names a process which listens on one.
func checkListeners(ports []networks.PortMapping) error {
	if len(ports) == 0 {
		return nil
	}
	for _, protocol := range []string{"tcp", "udp"} {
		for _, family := range []string{"", "6"} {
			sockets, err := listening(protocol, family)
			if err != nil {
				return err
			}
			for _, port := range ports {
				host, _ := netip.ParseAddr(port.HostIP)
				for _, s := range sockets {
					if port.Protocol == protocol && s.port == port.HostPort && covers(host, s.address) {
						return fmt.Errorf("%w: %s is used by %s", ErrPortTaken, describePort(port), ownerOf(s.inode))
					}
				}
			}
		}
	}
	return nil
}

// listening reads /proc/net/tcp and its siblings (proc_pid_net(5)): the second field is the local
// address in hexadecimal, the fourth the state, the tenth the inode.
func listening(protocol, family string) ([]socket, error) {
	data, err := os.ReadFile("/proc/self/net/" + protocol + family)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // a kernel without IPv6
	}
	if err != nil {
		return nil, fmt.Errorf("look for ports in use: %w", err)
	}
	state := map[string]string{"tcp": "0A", "udp": "07"}[protocol] // TCP_LISTEN; a UDP socket without a peer
	var all []socket
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[3] != state {
			continue
		}
		if s, ok := parseSocket(fields[1], fields[9]); ok {
			all = append(all, s)
		}
	}
	return all, nil
}

// parseSocket reads an address such as 0100007F:1F90: words of 32 bits in the machine's byte order.
func parseSocket(local, inode string) (socket, bool) {
	text, portText, _ := strings.Cut(local, ":")
	port, err := strconv.ParseUint(portText, 16, 16)
	if err != nil || len(text)%8 != 0 {
		return socket{}, false
	}
	var bytes []byte
	for i := 0; i < len(text); i += 8 {
		word, err := strconv.ParseUint(text[i:i+8], 16, 32)
		if err != nil {
			return socket{}, false
		}
		bytes = append(bytes, byte(word), byte(word>>8), byte(word>>16), byte(word>>24))
	}
	address, ok := netip.AddrFromSlice(bytes)
	return socket{address.Unmap(), uint(port), inode}, ok
}

// ownerOf names a process that has the socket open.
func ownerOf(inode string) string {
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return "a process"
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err != nil || target != "socket:["+inode+"]" {
			continue
		}
		pid := strings.Split(fd, "/")[2]
		name, _ := os.ReadFile("/proc/" + pid + "/comm") // "" if it has just ended
		return fmt.Sprintf("process %s (%s)", pid, strings.TrimSpace(string(name)))
	}
	return "a process"
}
