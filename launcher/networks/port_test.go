package networks

import (
	"strings"
	"testing"
)

func TestAPortIsReadAndShown(t *testing.T) {
	for text, want := range map[string]string{
		"8080:80":             "8080->80/tcp",
		"8080:80/UDP":         "8080->80/udp",
		"127.0.0.1:8080:80":   "127.0.0.1:8080->80/tcp",
		"[fd00::1]:53:53/udp": "[fd00::1]:53->53/udp",
		"1:65535/sctp":        "1->65535/sctp",
		"80":                  "80/tcp",
		"80-81/udp":           "80/udp, 81/udp",
		"127.0.0.1::80":       "80/tcp",
		"8000-8002:80-82":     "8000-8002->80-82/tcp",
		"[::1]:1-2:3-4/sctp":  "[::1]:1-2->3-4/sctp",
		"80-81:80":            "80-81:80: the ranges differ in length",
		"80:80-81":            "80:80-81: the ranges differ in length",
		"81-80:81-80":         `ports "81-80": want FIRST-LAST`,
		"80-:80-81":           `ports "80-": want FIRST-LAST, numbers from 1 to 65535`,
		"1-2-3:1-2-3":         `ports "1-2-3": want FIRST-LAST`,
		"":                    `port "": want a number`,
		"::80":                `"" is not an address of the host`,
		"0:80":                `port "0": want a number from 1 to 65535`,
		"80:65536":            `port "65536": want a number from 1 to 65535`,
		":80":                 `port "": want a number`,
		"80:-1":               `ports "-1": want FIRST-LAST`,
		"80:80/icmp":          `protocol "icmp": want tcp, udp or sctp`,
		"80:80/":              `protocol "": want tcp`,
		"localhost:80:80":     `"localhost" is not an address of the host`,
		"fd00::1:80:80":       `"fd00::1" is not an address of the host`,
		"[127.0.0.1]:80:80":   `"[127.0.0.1]" is not an address of the host`,
		":80:80":              `"" is not an address of the host`,
	} {
		ports, err := ParsePorts(text)
		got := DescribePorts(ports)
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.HasPrefix(got, want)) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestConsecutivePortsAreARange(t *testing.T) {
	tcp := func(host, port uint) PortMapping {
		return PortMapping{HostPort: host, ContainerPort: port, Protocol: "tcp"}
	}
	local := PortMapping{HostPort: 84, ContainerPort: 184, Protocol: "tcp", HostIP: "127.0.0.1"}
	for want, ports := range map[string][]PortMapping{
		"":                                   nil,
		"80->180/tcp":                        {tcp(80, 180)},
		"80-82->180-182/tcp":                 {tcp(80, 180), tcp(81, 181), tcp(82, 182)},
		"80->180/tcp, 82->182/tcp":           {tcp(80, 180), tcp(82, 182)},
		"80->180/tcp, 81->180/tcp":           {tcp(80, 180), tcp(81, 180)},
		"83->183/tcp, 127.0.0.1:84->184/tcp": {tcp(83, 183), local},
	} {
		if got := DescribePorts(ports); got != want {
			t.Errorf("%v: %q, want %q", ports, got, want)
		}
	}
}
