package sources

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	inmemory "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// tlsRegistry is a registry by TLS on the loopback device, whose authority nobody knows.
type tlsRegistry struct {
	*httptest.Server
	host string

	mu       sync.Mutex
	requests []*http.Request
	below    string // serves only at this path, in the place of /v2
	user     string // asks for a user of this name
}

func newTLSRegistry(t *testing.T, clients tls.ClientAuthType) *tlsRegistry {
	t.Helper()
	r := &tlsRegistry{}
	images := inmemory.New(inmemory.Logger(log.New(io.Discard, "", 0)))
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		r.mu.Lock()
		r.requests = append(r.requests, in.Clone(in.Context()))
		below, want := r.below, r.user
		r.mu.Unlock()
		if user, _, _ := in.BasicAuth(); want != "" && user != want {
			out.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			out.WriteHeader(http.StatusUnauthorized)
			return
		}
		if below != "" {
			rest, ok := strings.CutPrefix(in.URL.Path, below)
			if !ok {
				http.NotFound(out, in)
				return
			}
			in.URL.Path = "/v2" + rest
		}
		images.ServeHTTP(out, in)
	}))
	r.TLS = &tls.Config{ClientAuth: clients, MinVersion: tls.VersionTLS12}
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.StartTLS()
	t.Cleanup(r.Close)
	r.host = strings.TrimPrefix(r.URL, "https://")
	return r
}

// put stores a new image, and returns it.
func (r *tlsRegistry) put(t *testing.T, tag string, image v1.Image) v1.Image {
	t.Helper()
	if image == nil {
		var err error
		if image, err = random.Image(64, 1); err != nil {
			t.Fatal(err)
		}
	}
	ref, err := name.ParseReference(r.host + "/" + tag)
	if err == nil {
		err = remote.Write(ref, image, remote.WithTransport(r.Client().Transport))
	}
	if err != nil {
		t.Fatal(err)
	}
	r.forget()
	return image
}

func (r *tlsRegistry) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = nil
}

// asked returns the requests for manifests and blobs.
func (r *tlsRegistry) asked() (all []*http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.requests {
		if strings.Contains(one.URL.Path, "/app/") {
			all = append(all, one)
		}
	}
	return all
}

// hosts writes a hosts.toml with the authorities of all the registries in ca.pem.
func hosts(t *testing.T, f *Fetcher, folder, text string, registries ...*tlsRegistry) {
	t.Helper()
	f.Hosts = cmp.Or(f.Hosts, t.TempDir())
	dir := filepath.Join(f.Hosts, folder)
	var all []byte
	for _, r := range registries {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})...)
	}
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o600),
		os.WriteFile(filepath.Join(dir, "ca.pem"), all, 0o600)); err != nil {
		t.Fatal(err)
	}
}

func imageDigest(t *testing.T, image v1.Image) string {
	t.Helper()
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// Mirrors and the registry's own server are asked in the order of its hosts.toml, each with its authority, path and headers.
func TestMirrorsAreAskedAsTheirFileSays(t *testing.T) {
	mirror, server := newTLSRegistry(t, tls.NoClientCert), newTLSRegistry(t, tls.NoClientCert)
	image := mirror.put(t, "app:1", nil)
	server.put(t, "app:1", image)
	other := server.put(t, "app:2", nil)
	for what, test := range map[string]struct {
		folder, text, below string
		mirror, server      int // at least so many requests, -1 for none
		path, want          string
	}{
		"a mirror": {"registry.test", `[host."https://MIRROR"]
			ca = "ca.pem"
			[host."https://MIRROR".header]
			x-test = ["a", "b"]`, "", 3, -1, "/v2/app/", ""},
		"without a scheme":          {"registry.test", "[host.\"MIRROR\"]\nca = [\"ca.pem\"]", "", 3, -1, "/v2/app/", ""},
		"for every registry":        {"_default", "[host.\"https://MIRROR\"]\nca = \"ca.pem\"", "", 3, -1, "/v2/app/", ""},
		"another path":              {"registry.test", "[host.\"https://MIRROR/art/docker\"]\nca = \"ca.pem\"", "/art/docker/v2", 3, -1, "/art/docker/v2/app/", ""},
		"a path in the place of v2": {"registry.test", "[host.\"https://MIRROR/v2/proxy\"]\noverride_path = true\nca = \"ca.pem\"", "/v2/proxy", 3, -1, "/v2/proxy/app/", ""},
		"not verified":              {"registry.test", "[host.\"https://MIRROR\"]\nskip_verify = true", "", 3, -1, "/v2/app/", ""},
		"an unknown authority":      {"registry.test", "server = \"https://SERVER\"\nca = \"ca.pem\"\n[host.\"https://MIRROR\"]", "", -1, 3, "", ""},
		"a server alone":            {"registry.test", "server = \"https://SERVER\"\nca = \"ca.pem\"", "", -1, 3, "", ""},
		"a mirror that is gone":     {"registry.test", "server = \"https://SERVER\"\nca = \"ca.pem\"\n[host.\"https://127.0.0.1:1\"]", "", -1, 3, "", ""},
		"nothing answers":           {"registry.test", "server = \"https://127.0.0.1:1\"\n[host.\"https://MIRROR\"]", "", -1, -1, "", "https://MIRROR: "},
		"pull alone": {
			"registry.test", "server = \"https://SERVER\"\nca = \"ca.pem\"\n[host.\"https://MIRROR\"]\nca = \"ca.pem\"\ncapabilities = [\"pull\"]", "", 2, 1,
			"/v2/app/", "",
		},
		"push alone": {"registry.test", "server = \"https://SERVER\"\nca = \"ca.pem\"\n[host.\"https://MIRROR\"]\nca = \"ca.pem\"\ncapabilities = [\"push\"]", "", -1, 3, "", ""},
	} {
		t.Run(what, func(t *testing.T) {
			mirror.forget()
			server.forget()
			mirror.below = test.below
			defer func() { mirror.below = "" }()
			f := newFetcher(t)
			f.attempts = 1
			fill := strings.NewReplacer("MIRROR", mirror.host, "SERVER", server.host).Replace
			hosts(t, f, test.folder, fill(test.text), mirror, server)
			digest, err := f.Digest(t.Context(), "registry.test/app:1")
			if err == nil && digest != imageDigest(t, image) {
				t.Errorf("digest %s", digest)
			}
			if err == nil {
				_, err = f.Import(t.Context(), "docker://registry.test/app:1")
			}
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), fill(test.want)) {
				t.Fatalf("error %v, want %q", err, test.want)
			}
			for _, of := range []struct {
				*tlsRegistry
				want int
			}{{mirror, test.mirror}, {server, test.server}} {
				if n := len(of.asked()); n < of.want || of.want < 0 && n > 0 {
					t.Errorf("%s was asked %d times, want %d", of.host, n, of.want)
				}
			}
			for _, request := range mirror.asked() {
				header := request.Header.Values("X-Test")
				if !strings.HasPrefix(request.URL.Path, test.path) || request.URL.Query().Get("ns") != "registry.test" || what == "a mirror" && !slices.Equal(header, []string{"a", "b"}) {
					t.Errorf("the mirror is asked for %s with %q", request.URL, header)
				}
			}
		})
	}
	f := newFetcher(t) // the mirror lacks this tag
	hosts(t, f, "registry.test", fmt.Sprintf("server = \"https://%s\"\nca = \"ca.pem\"\n[host.\"https://%s\"]\nca = \"ca.pem\"", server.host, mirror.host), mirror, server)
	if digest, err := f.Digest(t.Context(), "registry.test/app:2"); err != nil || digest != imageDigest(t, other) {
		t.Errorf("%s, %v", digest, err)
	}
}

// A mirror that may not say what a tag means is asked by the digest that the registry says.
func TestAMirrorOfLayersDecidesNoTag(t *testing.T) {
	mirror, server := newTLSRegistry(t, tls.NoClientCert), newTLSRegistry(t, tls.NoClientCert)
	right := server.put(t, "app:1", nil)
	mirror.put(t, "app:old", right)
	mirror.put(t, "app:1", nil) // another
	f := newFetcher(t)
	hosts(t, f, "registry.test", fmt.Sprintf("server = \"https://%s\"\nca = \"ca.pem\"\n[host.\"https://%s\"]\nca = \"ca.pem\"\ncapabilities = [\"pull\"]", server.host, mirror.host), mirror, server)
	if _, err := f.Import(t.Context(), "docker://registry.test/app:1"); err != nil {
		t.Fatal(err)
	}
	for _, request := range mirror.asked() {
		if which, found := strings.CutPrefix(request.URL.Path, "/v2/app/manifests/"); found && which != imageDigest(t, right) {
			t.Errorf("the mirror is asked for %s", which)
		}
	}
	for _, request := range server.asked() {
		if strings.Contains(request.URL.Path, "/blobs/") {
			t.Errorf("the server is asked for %s", request.URL)
		}
	}
}

// A registry has the authority and the client's certificate of its own file, by each of its folder's names.
func TestARegistryHasItsAuthorityAndCertificate(t *testing.T) {
	r := newTLSRegistry(t, tls.RequireAnyClientCert)
	host, port, _ := strings.Cut(r.host, ":")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	r.Client().Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}
	image := r.put(t, "app:1", nil)
	c := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	k := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	for _, folder := range []string{r.host, host + "_" + port + "_", "_default"} {
		for _, client := range []string{`[["cert.pem", "key.pem"]]`, `"both.pem"`, `["both.pem"]`, `[["both.pem", ""]]`} {
			f := newFetcher(t)
			f.attempts = 1
			hosts(t, f, folder, "ca = \"ca.pem\"\nclient = "+client, r)
			for file, text := range map[string][]byte{"cert.pem": c, "key.pem": k, "both.pem": slices.Concat(c, k)} {
				if err := os.WriteFile(filepath.Join(f.Hosts, folder, file), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if digest, err := f.Digest(t.Context(), r.host+"/app:1"); err != nil || digest != imageDigest(t, image) {
				t.Errorf("%s, client = %s: %s, %v", folder, client, digest, err)
			}
		}
		f := newFetcher(t) // the same without a hosts.toml, in Docker's form
		f.attempts = 1
		hosts(t, f, folder, "", r)
		dir := filepath.Join(f.Hosts, folder)
		err := errors.Join(os.Rename(dir+"/ca.pem", dir+"/registry.crt"), os.Remove(dir+"/hosts.toml"),
			os.WriteFile(dir+"/client.cert", c, 0o600), os.WriteFile(dir+"/client.key", k, 0o600))
		if err != nil {
			t.Fatal(err)
		}
		if digest, err := f.Digest(t.Context(), r.host+"/app:1"); err != nil || digest != imageDigest(t, image) {
			t.Errorf("%s, in Docker's form: %s, %v", folder, digest, err)
		}
	}
	f := newFetcher(t)
	f.attempts = 1
	hosts(t, f, r.host, "ca = \"ca.pem\"", r)
	if digest, err := f.Digest(t.Context(), r.host+"/app:1"); err == nil {
		t.Errorf("without a certificate: %s", digest)
	}
}

// The credentials of a pull go to the registry alone. Those of the machine, also of a credential helper, go to the host
// that they are for.
func TestCredentialsGoToTheirHostsAlone(t *testing.T) {
	mirror, server := newTLSRegistry(t, tls.NoClientCert), newTLSRegistry(t, tls.NoClientCert)
	image := mirror.put(t, "app:1", nil)
	server.put(t, "app:1", image)
	mirror.user, server.user = "mirrors", "servers"
	ask := func(keychain authn.Keychain) (string, error) {
		f := newFetcher(t)
		f.attempts, f.Keychain = 1, keychain
		hosts(t, f, server.host, fmt.Sprintf("ca = \"ca.pem\"\n[host.\"https://%s\"]\nca = \"ca.pem\"", mirror.host), mirror, server)
		return f.Digest(t.Context(), server.host+"/app:1")
	}
	if digest, err := ask(given{}); err != nil || digest != imageDigest(t, image) {
		t.Errorf("given credentials: %s, %v", digest, err)
	}
	for _, request := range mirror.asked() {
		if request.Header.Get("Authorization") != "" {
			t.Errorf("the mirror gets the registry's credentials")
		}
	}
	dir := t.TempDir()
	config := fmt.Sprintf(`{"credHelpers": {%q: "kurma-test"}}`, mirror.host)
	helper := "#!/bin/sh\nread host\n[ \"$1\" = get ] && echo '{\"ServerURL\": \"'$host'\", \"Username\": \"mirrors\", \"Secret\": \"x\"}'\n"
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600), os.WriteFile(filepath.Join(dir, "docker-credential-kurma-test"), []byte(helper), 0o700)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", dir)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	server.forget()
	if digest, err := ask(nil); err != nil || digest != imageDigest(t, image) || len(server.asked()) > 0 {
		t.Errorf("a helper's credentials: %s, %v; the server was asked %d times", digest, err, len(server.asked()))
	}
}

// given are credentials of one pull.
type given struct{}

func (given) Resolve(authn.Resource) (authn.Authenticator, error) {
	return &authn.Basic{Username: "servers", Password: "x"}, nil
}

// A file with a mistake is named with its key, in one line, and nothing is asked.
func TestABadHostsFileIsNamedWithItsKey(t *testing.T) {
	for text, want := range map[string]string{
		`server = `:                                 "expected",
		`server = 5`:                                `server`,
		`servers = "x"`:                             `unknown key servers`,
		"[host.\"https://a.test\"]\nfoo = 1":        `unknown key host."https://a.test".foo`,
		`server = "https://"`:                       `server: "https://": want a URL`,
		`[host."http://u:p@a.test"]`:                `host."http://u:p@a.test": "http://u:p@a.test": want a URL`,
		"skip_verify = \"yes\"":                     `skip_verify`,
		"[host.\"a.test\"]\ndial_timeout=\"x\"":     `host."a.test".dial_timeout: "x": want a duration`,
		"[host.\"a.test\"]\ncapabilities=[\"fly\"]": `host."a.test".capabilities: "fly": want pull, resolve or push`,
		"[host.\"a.test\"]\nca=5":                   `host."a.test".ca: want a text or a list of texts`,
		"[host.\"a.test\"]\nca=\"none.pem\"":        `none.pem: no such file`,
		"ca=\"hosts.toml\"":                         `ca: hosts.toml has no certificate in PEM`,
		"client=[[\"a\",\"b\",\"c\"]]":              `client: want a file, or a list`,
		"client=\"hosts.toml\"":                     `client: tls: `,
		"[header]\nx-a=[1]":                         `header.x-a: want a text`,
	} {
		f := newFetcher(t)
		hosts(t, f, "registry.test", text)
		_, err := f.Import(t.Context(), "docker://registry.test/app:1")
		file := filepath.Join(f.Hosts, "registry.test/hosts.toml")
		if err == nil || !strings.Contains(err.Error(), file+": ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// A wrong file in a folder of Docker's form is named, in one line. A folder without certificates is none.
func TestABadCertificateInDockersFormIsNamed(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"registry.crt", "ca: registry.crt has no certificate in PEM"},
		{"client.cert", "client: open "},
		{"note.txt", ""},
	} {
		top := t.TempDir()
		dir := filepath.Join(top, "registry.test")
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, test.name), []byte("text"), 0o600)); err != nil {
			t.Fatal(err)
		}
		all, err := endpointsOf(top, "registry.test")
		if test.want == "" && (err != nil || len(all) != 1 || all[0].tls != nil) {
			t.Errorf("%s: %v, %v", test.name, all, err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), dir+": "+test.want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}
