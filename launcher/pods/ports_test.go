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
		if tt.words == "" && err != nil || tt.words != "" && (!errors.Is(err, errPortTaken) || !strings.Contains(err.Error(), tt.words)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.words)
		}
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
