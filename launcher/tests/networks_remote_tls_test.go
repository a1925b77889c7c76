package tests

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/tests/harness"
)

// newKeys makes a key in a new folder, as key.pem, and as cert.pem a certificate of it, which is its own authority, for server
// and client at 127.0.0.1.
func newKeys(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	secret, keyErr := x509.MarshalECPrivateKey(private)
	if err := errors.Join(err, keyErr,
		os.WriteFile(filepath.Join(dir, "cert.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600),
		os.WriteFile(filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// specify writes the specification of a driver that listens with TLS, for a caller with these keys who knows the driver by
// the certificate in ca.
func (d *testDriver) specify(caller, ca string) {
	d.t.Helper()
	text, err := json.Marshal(map[string]any{"Name": d.name, "Addr": "https://" + d.address, "TLSConfig": map[string]any{
		"InsecureSkipVerify": false, "CAFile": filepath.Join(ca, "cert.pem"),
		"CertFile": filepath.Join(caller, "cert.pem"), "KeyFile": filepath.Join(caller, "key.pem"),
	}})
	if err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(d.file, text, 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// A driver over TCP with TLS and of global scope, by its specification: pods talk, and the driver hears of the nodes. One whose
// certificate is not that of its authority, one that does not know our certificate, and one of another scope
// cost the pod's start, with a line that says why, before the driver is asked for a network.
func TestRemoteDriverOfGlobalScopeOverTLS(t *testing.T) {
	t.Parallel()
	name := uniqueDriver()
	m := newNetMachine(t, "["+remoteEntry(name, dualStack+`, "node": "192.0.2.1", "nodes": ["192.0.2.2"]`)+"]")
	ours, theirs, strangers := newKeys(t), newKeys(t), newKeys(t)
	if err := os.Symlink(filepath.Join(ours, "cert.pem"), filepath.Join(theirs, "ca.pem")); err != nil {
		t.Fatal(err)
	}
	d := makeDriver(t, m.host, filepath.Join("/etc/docker/plugins", name, name+".json"), "--scope", "global", "--tls", theirs)
	d.address = "127.0.0.1:7443"
	m.after = append(m.after, d.close)
	d.start()
	doc := m.Write("p.json", harness.PodOf(server("s", "p for")))
	before := m.linkNames()
	const global, another = `{"Status": 200, "Body": "{\"Scope\": \"global\"}"}`, `{"Status": 200, "Body": "{\"Scope\": \"swarm\"}"}`
	for _, tt := range []struct{ name, caller, ca, scope, words, calls string }{
		{"of another authority", ours, strangers, global, "certificate signed by unknown authority", ""},
		{"that does not know us", strangers, theirs, global, "certificate", ""},
		{"of another scope", ours, theirs, another, `scope "swarm": want local or global`, "Activate GetCapabilities"},
	} {
		d.specify(tt.caller, tt.ca)
		d.fail("GetCapabilities", tt.scope)
		r := m.Launcher("run", "--detach", "--name", "p", "--net", "remote", doc)
		if r.Code != 1 || strings.Count(r.Stderr, "\n") != 1 || !strings.Contains(r.Stderr, tt.words) || !strings.Contains(r.Stderr, `network "remote"`) {
			t.Errorf("a driver %s: %+v, want one line with %q", tt.name, r, tt.words)
		}
		if got := d.methods(); got != tt.calls {
			t.Errorf("a driver %s: calls %s, want %s", tt.name, got, tt.calls)
		}
	}
	d.fail("", "")
	if links := m.linkNames(); links != before {
		t.Errorf("links of pods that have not started\n%s, want\n%s", links, before)
	}

	p := m.connect("p", harness.PodOf(server("s", "p for")), "remote:ips=10.95.0.7")
	q := m.connect("q", harness.PodOf(suite.Shell("s", "sleep 1000")), "remote")
	answers(t, "p for "+m.networksOf(q)[0].address(false), func() string { return fetchFrom(q, "s", "10.95.0.7", 8080) })
	m.Must("network", "validate", "remote")
	m.Must("stop", p.Name)
	m.Must("stop", q.Name)
	m.reconfigure("[]")
	m.Must("gc")
	calls := d.calls()
	var methods []string
	for _, c := range calls {
		methods = append(methods, c.Method)
	}
	const handshake = "Activate GetCapabilities DiscoverNew DiscoverNew"
	want := strings.Join([]string{
		handshake, "CreateNetwork", callsOfConnect, callsOfConnect, handshake, "EndpointOperInfo EndpointOperInfo",
		callsOfDisconnect, callsOfDisconnect, "DeleteNetwork",
	}, " ")
	if got := strings.Join(methods, " "); got != want {
		t.Fatalf("calls\n%s, want\n%s", got, want)
	}
	for i, want := range []string{
		`{"DiscoveryData":{"Address":"192.0.2.1","BindAddress":"192.0.2.1","Self":true,"self":true},"DiscoveryType":1}`,
		`{"DiscoveryData":{"Address":"192.0.2.2","BindAddress":"","Self":false,"self":false},"DiscoveryType":1}`,
	} {
		if body, _ := json.Marshal(calls[2+i].Body); string(body) != want {
			t.Errorf("DiscoverNew %s, want %s", body, want)
		}
	}
}

// A driver without a socket in Docker's folder, by a file with its address in either of Docker's folders for these.
func TestRemoteDriverOfASpecFile(t *testing.T) {
	t.Parallel()
	sockets, err := os.MkdirTemp("", "driver-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	for _, tt := range []struct{ name, folder, scheme, address string }{
		{"TCP", "/etc/docker/plugins", "tcp://", "127.0.0.1:7444"},
		{"a socket elsewhere", "/usr/lib/docker/plugins", "unix://", filepath.Join(sockets, "driver.sock")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name := uniqueDriver()
			m := newNetMachine(t, "["+remoteEntry(name, dualStack)+"]")
			d := makeDriver(t, m.host, filepath.Join(tt.folder, name, name+".spec"))
			d.address = tt.address
			m.after = append(m.after, d.close)
			d.start()
			if err := os.WriteFile(d.file, []byte(tt.scheme+tt.address+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			p := m.connect("p", harness.PodOf(server("s", "p for")), "remote")
			answers(t, "p for 10.95.0.1", func() string { return m.host.fetch(m.networksOf(p)[0].address(false), 8080) })
			m.Must("stop", p.Name)
			if got, want := d.methods(), strings.Join([]string{callsOfNetwork, callsOfConnect, callsOfDisconnect}, " "); got != want {
				t.Errorf("calls\n%s, want\n%s", got, want)
			}
		})
	}
}
