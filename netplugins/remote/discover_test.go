package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// put writes files of a machine.
func (f *fakeDriver) put(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(f.host, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDriversAreFoundWhereDockerFindsThem(t *testing.T) {
	f := newDriver(t)
	f.put(t, map[string]string{
		"etc/docker/plugins/test.spec":              "tcp://192.0.2.1:1", // the socket is first
		"etc/docker/plugins/text.spec":              "tcp://192.0.2.1:2\n",
		"etc/docker/plugins/text.json":              `{"Addr": "tcp://192.0.2.9:9"}`,
		"usr/lib/docker/plugins/text.spec":          "tcp://192.0.2.9:9",
		"usr/lib/docker/plugins/nested/nested.json": `{"Addr": "http://[2001:db8::1]", "Name": "nested"}`,
		"usr/lib/docker/plugins/plain.spec":         "unix:///run/plain.sock",
		"usr/lib/docker/plugins/secure.spec":        "https://example.com",
		"usr/lib/docker/plugins/bad.spec":           "192.0.2.1:2",
		"usr/lib/docker/plugins/other.spec":         "npipe:////./pipe/x",
		"usr/lib/docker/plugins/json.json":          "{",
		"usr/lib/docker/plugins/ca.json":            `{"Addr": "https://example.com", "TLSConfig": {"CAFile": "/etc/nowhere.pem"}}`,
		"usr/lib/docker/plugins/real/spec":          "tcp://192.0.2.1:3",
		"run/docker/plugins/file.sock":              "not a socket",
		"usr/lib/docker/plugins/file.spec":          "tcp://192.0.2.1:4",
	})
	// A link leads where it leads on the host.
	if err := os.Symlink("/usr/lib/docker/plugins/real/spec", filepath.Join(f.host, "etc/docker/plugins/link.spec")); err != nil {
		t.Fatal(err)
	}
	deep := f.listen(t, "deep/deep")
	defer deep.Close()
	host, err := openRoot(f.host)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, network, address, words string }{
		{"test", "unix", "/run/docker/plugins/test.sock", ""},
		{"deep", "unix", "/run/docker/plugins/deep/deep.sock", ""},
		{"text", "tcp", "192.0.2.1:2", ""},
		{"nested", "tcp", "[2001:db8::1]:80", ""},
		{"plain", "unix", "/run/plain.sock", ""},
		{"secure", "tcp", "example.com:443", ""},
		{"link", "tcp", "192.0.2.1:3", ""},
		{"file", "tcp", "192.0.2.1:4", ""},
		{"bad", "", "", "bad.spec: "},
		{"other", "", "", "want unix://"},
		{"json", "", "", "json.json: unexpected end"},
		{"ca", "", "", "CAFile: open /etc/nowhere.pem"},
		{"none", "", "", "driver not found"},
	} {
		where, err := find([]*root{host}, tt.name)
		if tt.words != "" {
			if err == nil || !strings.Contains(err.Error(), tt.words) || errors.Is(err, errNotFound) != (tt.name == "none") {
				t.Errorf("%s: %v, want %s", tt.name, err, tt.words)
			}
			continue
		}
		if err != nil || where.network != tt.network || where.address != tt.address || (where.tls != nil) != (tt.name == "secure") {
			t.Errorf("%s: %+v, %v", tt.name, where, err)
		}
	}
}

// keys are a certificate and its key in PEM form.
type keys struct{ certificate, key string }

func newKeys(t *testing.T) keys {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return keys{
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})),
	}
}

// A driver over TCP, without TLS and with it.
func TestDriversOverTCP(t *testing.T) {
	f := newDriver(t)
	ours, theirs, strangers := newKeys(t), newKeys(t), newKeys(t)
	plain := httptest.NewServer(f)
	defer plain.Close()
	secure := httptest.NewUnstartedServer(f)
	pair, err := tls.X509KeyPair([]byte(theirs.certificate), []byte(theirs.key))
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM([]byte(ours.certificate))
	secure.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	secure.StartTLS()
	defer secure.Close()
	f.put(t, map[string]string{
		"etc/docker/tls/ca.pem": theirs.certificate, "etc/docker/tls/stranger.pem": strangers.certificate,
		"etc/docker/tls/cert.pem": ours.certificate, "etc/docker/tls/key.pem": ours.key,
	})
	const files = `"CertFile": "/etc/docker/tls/cert.pem", "KeyFile": "/etc/docker/tls/key.pem"`
	for _, tt := range []struct{ name, server, tls, words string }{
		{"plain", strings.Replace(plain.URL, "http", "tcp", 1), "", ""},
		{"verified", secure.URL, `{"CAFile": "/etc/docker/tls/ca.pem", ` + files + `}`, ""},
		{"verified by the scheme tcp", strings.Replace(secure.URL, "https", "tcp", 1), `{"CAFile": "/etc/docker/tls/ca.pem", ` + files + `}`, ""},
		{"without a CA", secure.URL, `{` + files + `}`, ""},
		{"of another CA, which does not matter", secure.URL, `{"InsecureSkipVerify": true, "CAFile": "/etc/docker/tls/stranger.pem", ` + files + `}`, ""},
		{"of another CA", secure.URL, `{"CAFile": "/etc/docker/tls/stranger.pem", ` + files + `}`, "certificate"},
		{"without our certificate", secure.URL, `{"CAFile": "/etc/docker/tls/ca.pem"}`, "certificate"},
		{"without our key", secure.URL, `{"CertFile": "/etc/docker/tls/cert.pem"}`, "KeyFile"},
	} {
		specification := map[string]any{"Addr": tt.server}
		if tt.tls != "" {
			specification["TLSConfig"] = json.RawMessage(tt.tls)
		}
		text, err := json.Marshal(specification)
		if err != nil {
			t.Fatal(err)
		}
		f.put(t, map[string]string{"etc/docker/plugins/remote.json": string(text)})
		r := f.newRemote(t)
		r.state.dir = filepath.Join(f.host, "state-of-"+tt.name)
		err = setup(r, configWith(t, map[string]any{"driver": "remote"}))
		if tt.words == "" {
			f.must(t, err, callsOfSetup)
		} else if calls := f.take(); err == nil || !strings.Contains(err.Error(), tt.words) || calls != "" {
			t.Errorf("%s: error %v, want %s; calls %s", tt.name, err, tt.words, calls)
		}
	}
}

func TestAddressesOfPods(t *testing.T) {
	parsed := func(text string) *settings {
		s, err := parse(configWith(t, map[string]any{"ipam": json.RawMessage(text)}))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	small := parsed(`[{"subnet": "10.1.0.0/29", "gateway": "10.1.0.1", "auxAddresses": {"a": "10.1.0.6/29"}}]`)
	two := parsed(`[{"subnet": "10.1.0.0/30", "gateway": "10.1.0.1"}, {"subnet": "10.2.0.0/24", "range": "10.2.0.64/26"}, {"subnet": "fd00::/64"}]`)
	pair := parsed(`[{"subnet": "10.1.0.0/31"}, {"subnet": "fd00::/127"}]`)
	for _, tt := range []struct {
		name             string
		s                *settings
		wanted           []string
		used, last, want string
		words            string
	}{
		{"the first", small, nil, "", "", "10.1.0.2/29", ""},
		{"after the last", small, nil, "10.1.0.2", "10.1.0.3", "10.1.0.4/29", ""},
		{"from the start again", small, nil, "10.1.0.2", "10.1.0.5", "10.1.0.3/29", ""},
		{"none is free", small, nil, "10.1.0.2 10.1.0.3 10.1.0.4 10.1.0.5", "", "", "no address of 10.1.0.0/29 is free"},
		{"the one that is asked for", small, []string{"10.1.0.4"}, "", "", "10.1.0.4/29", ""},
		{"one of another prefix length", small, []string{"10.1.0.4/24"}, "", "", "10.1.0.4/29", ""},
		{"one that is used", small, []string{"10.1.0.4"}, "10.1.0.4", "", "", "10.1.0.4 is taken"},
		{"the gateway's", small, []string{"10.1.0.1"}, "", "", "", "is taken"},
		{"one that is kept free", small, []string{"10.1.0.6"}, "", "", "", "is taken"},
		{"the subnet's", small, []string{"10.1.0.0"}, "", "", "", "is taken"},
		{"the broadcast address", small, []string{"10.1.0.7"}, "", "", "", "is taken"},
		{"one of another subnet", small, []string{"10.9.0.1"}, "", "", "", "in no subnet"},
		{"two", small, []string{"10.1.0.3", "10.1.0.4"}, "", "", "", "one address of a family"},
		{"one of each family", two, nil, "", "", "10.1.0.2/30 fd00::1/64", ""},
		{"the next subnet", two, nil, "10.1.0.2", "", "10.2.0.64/24 fd00::1/64", ""},
		{"one that is asked for, and the other family's", two, []string{"fd00::7"}, "", "", "10.1.0.2/30 fd00::7/64", ""},
		{"a pair", pair, nil, "10.1.0.0 fd00::", "", "10.1.0.1/31 fd00::1/127", ""},
		{"without ipam", parsed("[]"), nil, "", "", "", ""},
		{"asked for without ipam", parsed("[]"), []string{"10.1.0.4/24"}, "", "", "10.1.0.4/24", ""},
		{"asked for without ipam and prefix length", parsed("[]"), []string{"10.1.0.4"}, "", "", "", "CIDR"},
	} {
		used, last := make(map[netip.Addr]bool), make(map[string]netip.Addr)
		for ip := range strings.FieldsSeq(tt.used) {
			used[netip.MustParseAddr(ip)] = true
		}
		if tt.last != "" {
			last[tt.s.IPAM[0].Subnet.String()] = netip.MustParseAddr(tt.last)
		}
		chosen, err := tt.s.choose(tt.wanted, used, last)
		var got []string
		for _, prefix := range chosen {
			got = append(got, prefix.String())
		}
		if tt.words != "" && (err == nil || !strings.Contains(err.Error(), tt.words)) || tt.words == "" && err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, %v, want %s%s", tt.name, got, err, tt.want, tt.words)
		}
	}
}

// A daemon without the host's PID namespace gives the sockets in a volume, which comes before the host.
func TestDriversAreFoundInAVolumeFirst(t *testing.T) {
	inVolume, onHost := newDriver(t), newDriver(t)
	onHost.put(t, map[string]string{"etc/docker/plugins/other.spec": "tcp://192.0.2.1:1"})
	var roots []*root
	for _, f := range []*fakeDriver{inVolume, onHost} {
		r, err := openRoot(f.host)
		if err != nil {
			t.Fatal(err)
		}
		roots = append(roots, r)
	}
	if where, err := find(roots, "test"); err != nil || where.root != roots[0] {
		t.Errorf("%v; the driver is found in %v, want the volume", err, where.root)
	}
	if where, err := find(roots, "other"); err != nil || where.address != "192.0.2.1:1" {
		t.Errorf("%v; the driver of the host is %q", err, where.address)
	}
	_, err := find(roots, "none")
	if err == nil || !errors.Is(err, errNotFound) || !strings.Contains(err.Error(), inVolume.host+" and "+onHost.host) {
		t.Errorf("error %v, want both places", err)
	}
}
