package pods

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"kurma.io/stager/launcher/networks"
)

func TestAPortInUseIsAnErrorThatNamesTheHolder(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	number := uint(listener.Addr().(*net.TCPAddr).Port)
	taken := fmt.Sprintf("process %d (", os.Getpid())
	port := func(protocol, ip string) networks.PortMapping {
		return networks.PortMapping{HostPort: number, ContainerPort: 80, Protocol: protocol, HostIP: ip}
	}
	for _, tt := range []struct {
		name, words string
		ports       []networks.PortMapping
	}{
		{"every address", taken, []networks.PortMapping{port("tcp", "")}},
		{"the address", taken, []networks.PortMapping{port("tcp", "127.0.0.1")}},
		{"another address", "", []networks.PortMapping{port("tcp", "127.0.0.2")}},
		{"another protocol", "", []networks.PortMapping{port("udp", "")}},
		{"twice", "published twice", []networks.PortMapping{port("udp", ""), port("udp", "127.0.0.1")}},
		{"an address of IPv6", "", []networks.PortMapping{port("udp", "::1")}},
		{"two addresses", "", []networks.PortMapping{port("udp", "127.0.0.2"), port("udp", "127.0.0.1")}},
	} {
		err := errors.Join(checkPorts(Plan{Ports: tt.ports}, nil), checkListeners(tt.ports))
		if tt.words == "" && err != nil || tt.words != "" && (!errors.Is(err, ErrPortTaken) || !strings.Contains(err.Error(), tt.words)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.words)
		}
	}
}

// A port that nobody asks for by its number is one that neither a process nor a pod has.
func TestAPortIsChosen(t *testing.T) {
	tcp := func(port uint) networks.PortMapping {
		return networks.PortMapping{HostPort: port, ContainerPort: 80, Protocol: "tcp"}
	}
	var taken []networks.PortMapping // all but two
	const left, heard = firstFree + 5, firstFree + 7
	for n := range uint(countFree) {
		if port := firstFree + n; port != left && port != heard {
			taken = append(taken, tcp(port))
		}
	}
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", heard))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	pod := []*Pod{{Plan: Plan{Ports: taken}}}
	if port, err := freePort(tcp(0), nil, pod); port != left || err != nil {
		t.Errorf("%d, %v, want %d", port, err, left)
	}
	if port, err := freePort(tcp(0), []networks.PortMapping{tcp(left)}, pod); !errors.Is(err, ErrPortTaken) {
		t.Errorf("none is free: %d, %v", port, err)
	}
	store := Open(t.TempDir(), "")
	ports, err := store.ChoosePorts([]networks.PortMapping{tcp(0), tcp(8080), tcp(0)})
	if err != nil || ports[1] != tcp(8080) || ports[0].HostPort < firstFree || ports[2].HostPort < firstFree || ports[0] == ports[2] {
		t.Errorf("%v, %v", ports, err)
	}
}

// A port on an address that the host does not have is refused: nothing would ever arrive there.
func TestAPortWantsAnAddressOfTheHost(t *testing.T) {
	for ip, ok := range map[string]bool{
		"": true, "0.0.0.0": true, "::": true, "127.0.0.1": true, "127.3.4.5": true, "::ffff:127.0.0.1": true,
		"192.0.2.77": false, "2001:db8::77": false, "::ffff:192.0.2.77": false,
	} {
		err := checkPorts(Plan{Ports: []networks.PortMapping{{HostPort: 1, ContainerPort: 80, Protocol: "sctp", HostIP: ip}}}, nil)
		if ok && err != nil || !ok && (err == nil || !strings.Contains(err.Error(), "->80/sctp cannot be published: the host has no address ")) {
			t.Errorf("%q: %v", ip, err)
		}
	}
}
