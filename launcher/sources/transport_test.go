package sources

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"kurma.io/stager/tests/surroundings"
)

// registryOf serves a registry without images but for what handle answers, and returns its HOST:PORT.
func registryOf(t *testing.T, handle func(out http.ResponseWriter, in *http.Request) (done bool)) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		if !handle(out, in) && in.URL.Path != "/v2/" {
			http.NotFound(out, in)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// absentConfig is the descriptor of a configuration that no server has.
func absentConfig() string {
	return fmt.Sprintf(`{"mediaType": %q, "size": 2, "digest": "sha256:%s"}`, configType, strings.Repeat("0", 64))
}

// Redirects end also for a client whose library lets them go on, and an answer's headers have a limit.
func TestATransportBoundsWhatAServerSends(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		asked.Add(1)
		if in.URL.Path == "/headers" {
			out.Header().Set("X-Long", strings.Repeat("x", 2*maxHeaders))
			return
		}
		http.Redirect(out, in, in.URL.Path+"x", http.StatusFound)
	}))
	defer server.Close()
	f := &Fetcher{}
	client := &http.Client{
		Transport: f.transport("127.0.0.1", true), CheckRedirect: func(*http.Request, []*http.Request) error { return nil },
	}
	defer client.CloseIdleConnections()
	for path, words := range map[string]string{"/": "more than 10 redirects", "/headers": "header"} {
		response, err := client.Get(server.URL + path)
		if err == nil {
			_ = response.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", path, err, words)
		}
	}
	if n := asked.Load(); n != maxRedirects+2 {
		t.Errorf("asked %d times", n)
	}
}

// Every request of an import ends although the server redirects it for ever.
func TestEndlessRedirectsEnd(t *testing.T) {
	surroundings.Root(t)
	for name, loops := range map[string]string{
		"ping": "/v2/", "manifest": "/v2/app/manifests/", "token": "/token", "blob": "/v2/app/blobs/", "web": "/image.aci",
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			var host string
			host = registryOf(t, func(out http.ResponseWriter, in *http.Request) bool {
				switch {
				case asked.Add(1) > 1000:
					http.Error(out, "asked for ever", http.StatusTeapot)
				case strings.HasPrefix(in.URL.Path, loops) && (loops != "/v2/" || strings.Trim(in.URL.Path, "/vx2") == ""):
					http.Redirect(out, in, in.URL.Path+"x", http.StatusTemporaryRedirect)
				case name == "token" && in.URL.Path == "/v2/":
					out.Header().Set("WWW-Authenticate", `Bearer realm="http://`+host+`/token",service="x"`)
					http.Error(out, "", http.StatusUnauthorized)
				case name == "blob" && strings.HasPrefix(in.URL.Path, "/v2/app/manifests/"):
					_, _ = out.Write([]byte(manifestOf(absentConfig())))
				default:
					return false
				}
				return true
			})
			f := newFetcher(t)
			f.attempts = 1
			source := "docker://" + host + "/app"
			if name == "web" {
				source = "http://" + host + "/image.aci"
			}
			_, err := f.Import(t.Context(), source)
			if err == nil || !strings.Contains(err.Error(), "10 redirects") || asked.Load() > 50 {
				t.Errorf("%v, asked %d times", err, asked.Load())
			}
		})
	}
}

// A document of a registry that never ends, or has more values than an image may, is refused.
func TestADocumentOfARegistryHasLimits(t *testing.T) {
	surroundings.Root(t)
	many := `{"schemaVersion":2,"layers":[` + strings.Repeat("{},", maxValues) + `{}]}`
	for name, text := range map[string]string{"endless": "", "many values": many} {
		t.Run(name, func(t *testing.T) {
			host := registryOf(t, func(out http.ResponseWriter, in *http.Request) bool {
				if in.Method != http.MethodGet || !strings.Contains(in.URL.Path, "/manifests/") {
					return false
				}
				for more := true; more; more = text == "" && in.Context().Err() == nil {
					_, _ = out.Write([]byte(strings.Repeat(text, 1) + strings.Repeat(" ", 1<<16)))
				}
				return true
			})
			f := newFetcher(t)
			f.attempts = 1
			_, err := f.Import(t.Context(), "docker://"+host+"/app")
			if text == "" && !errors.Is(err, errLargeAnswer) || text != "" && (err == nil || !strings.Contains(err.Error(), "more than 65536 values")) {
				t.Errorf("%v", err)
			}
			f.checkCache(t)
		})
	}
}

// The values of a document are its objects, lists and commas, not those in its strings.
func TestValuesAreCountedOutsideOfStrings(t *testing.T) {
	for text, want := range map[string]int{`{"a":[1,2],"b":{}}`: 5, `"{[,\"{[,"`: 0, `{"a\\":"\\",",":"["}`: 2} {
		if got := countValues([]byte(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// Which server a request may go to, and by which protocol.
func TestATransportRefusesServers(t *testing.T) {
	const private, plain = "private or this machine's", "plain HTTP"
	for _, tt := range []struct {
		host, address, authorization string
		plainHTTP                    bool
		words                        string
	}{
		{"r.example", "https://r.example/v2/", "", false, ""},
		{"r.example", "http://r.example/v2/", "", false, plain},
		{"10.0.0.1", "http://10.0.0.1:5000/v2/", "", false, plain},
		{"nas.local", "http://nas.local:5000/v2/", "", false, plain},
		{"10.0.0.1", "http://10.0.0.1:5000/v2/", "Basic x", true, ""},
		{"r.example", "http://storage.example/x", "", false, ""},
		{"r.example", "http://token.example/x", "Basic x", false, plain},
		{"10.0.0.1", "https://10.0.0.1:9000/x", "", false, ""},
		{"r.example", "https://10.0.0.1/x", "", false, private},
		{"r.example", "http://127.0.0.1:1/x", "", true, private},
		{"r.example", "http://169.254.169.254/x", "", true, private},
		{"r.example", "http://[::ffff:169.254.169.254]/x", "", true, private},
		{"r.example", "http://0.0.0.0/x", "", true, private},
		{"r.example", "http://[fe80::1%25lo]/x", "", true, private},
	} {
		address, err := url.Parse(tt.address)
		if err != nil {
			t.Fatal(err)
		}
		request := &http.Request{URL: address, Header: http.Header{"Authorization": {tt.authorization}}}
		_, err = (&Fetcher{}).transport(tt.host, tt.plainHTTP).carrier(request)
		if tt.words == "" && err != nil || tt.words != "" && (err == nil || !strings.Contains(err.Error(), tt.words)) {
			t.Errorf("%s of %s: %v, want %q", tt.address, tt.host, err, tt.words)
		}
	}
	for host, want := range map[string]bool{"localhost": true, "a.localhost": true, "127.1.2.3": true, "::1": true, "nas.local": false, "10.0.0.1": false} {
		if isLoopback(host) != want {
			t.Errorf("%s: %v", host, !want)
		}
	}
}

// No redirect leads to this machine, by an address or a name, and an answer of a server that speaks no registry's
// protocol is in no error.
func TestARedirectToThisMachineIsRefused(t *testing.T) {
	surroundings.Root(t)
	const secret = "the secret of another server"
	var asked atomic.Int32
	inner := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(out, secret, http.StatusForbidden)
	}))
	defer inner.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(inner.URL, "http://"), ":")
	for _, target := range []string{"localhost:" + port, "127.1.2.3:" + port, "127.0.0.1:" + port} {
		for _, kind := range []string{"manifests", "blobs"} {
			t.Run(kind+" "+target, func(t *testing.T) {
				before := asked.Load()
				host := registryOf(t, func(out http.ResponseWriter, in *http.Request) bool {
					switch {
					case strings.Contains(in.URL.Path, "/"+kind+"/"):
						http.Redirect(out, in, "http://"+target+"/x", http.StatusTemporaryRedirect)
					case strings.Contains(in.URL.Path, "/manifests/"):
						_, _ = out.Write([]byte(manifestOf(absentConfig())))
					default:
						return false
					}
					return true
				})
				f := newFetcher(t)
				f.attempts = 1
				_, err := f.Import(t.Context(), "docker://"+host+"/app")
				same := strings.HasPrefix(target, "127.0.0.1") // the registry's own host
				if err == nil || strings.Contains(err.Error(), secret) || !same && (asked.Load() != before || !strings.Contains(err.Error(), "another host leads to")) {
					t.Errorf("%v, asked %d times", err, asked.Load()-before)
				}
			})
		}
	}
}

// A registry may ask for a token only when the manifest is asked for, and offer other ways beside it.
func TestAChallengeMayComeWithTheManifest(t *testing.T) {
	var host string
	host = registryOf(t, func(out http.ResponseWriter, in *http.Request) bool {
		switch {
		case in.URL.Path == "/token" && in.URL.Query().Get("scope") == "repository:app:pull":
			_, _ = out.Write([]byte(`{"token":"good"}`))
		case !strings.Contains(in.URL.Path, "/manifests/"):
			return false
		case in.Header.Get("Authorization") != "Bearer good":
			for _, challenge := range []string{"Negotiate", `Basic realm="x"`, `Bearer realm="http://` + host + `/token",service="x",scope="repository:app:pull"`} {
				out.Header().Add("WWW-Authenticate", challenge)
			}
			http.Error(out, "", http.StatusUnauthorized)
		default:
			out.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("1", 64))
		}
		return true
	})
	f := newFetcher(t)
	f.attempts = 1
	digest, err := f.Digest(t.Context(), host+"/app")
	if err != nil || digest != "sha256:"+strings.Repeat("1", 64) {
		t.Errorf("%s, %v", digest, err)
	}
}

// A registry may ask for a token only when a blob is asked for. It is asked for one token.
func TestAChallengeMayComeWithABlob(t *testing.T) {
	surroundings.Root(t)
	config := `{"rootfs": {"type": "layers"}, "config": {"Cmd": ["/x"]}}`
	manifest := manifestOf(fmt.Sprintf(`{"mediaType": %q, "size": %d, "digest": %q}`, configType, len(config), digestOf([]byte(config))))
	for _, right := range []bool{true, false} {
		var host string
		var tokens atomic.Int32
		host = registryOf(t, func(out http.ResponseWriter, in *http.Request) bool {
			switch {
			case in.URL.Path == "/token" && in.URL.Query().Get("scope") == "repository:app:pull":
				tokens.Add(1)
				_, _ = out.Write([]byte(`{"token":"good"}`))
			case strings.Contains(in.URL.Path, "/manifests/"):
				out.Header().Set("Content-Type", manifestType)
				_, _ = out.Write([]byte(manifest))
			case !strings.Contains(in.URL.Path, "/blobs/"):
				return false
			case in.Header.Get("Authorization") != "Bearer good" || !right:
				out.Header().Add("WWW-Authenticate", `Basic realm="x"`)
				out.Header().Add("WWW-Authenticate", `Bearer realm="http://`+host+`/token",service="x",scope="repository:app:pull"`)
				http.Error(out, "", http.StatusUnauthorized)
			default:
				_, _ = out.Write([]byte(config))
			}
			return true
		})
		f := newFetcher(t)
		f.attempts = 1
		_, err := f.Import(t.Context(), "docker://"+host+"/app")
		if right && (err != nil || tokens.Load() != 1) || !right && (err == nil || !strings.Contains(err.Error(), "401 Unauthorized") || tokens.Load() > 2) {
			t.Errorf("%v: %v, %d tokens", right, err, tokens.Load())
		}
	}
}

// A page for people in the place of a token is named with its server.
func TestAPageIsNoToken(t *testing.T) {
	for _, early := range []bool{true, false} {
		var host string
		host = registryOf(t, func(out http.ResponseWriter, in *http.Request) bool {
			if in.URL.Path == "/token" {
				_, _ = out.Write([]byte("\n<!DOCTYPE html>\n<p>Log in" + strings.Repeat(" ", 1000)))
				return true
			}
			if early || in.URL.Path != "/v2/" {
				out.Header().Add("WWW-Authenticate", `Bearer realm="http://`+host+`/token",service="x"`)
				http.Error(out, "", http.StatusUnauthorized)
			}
			return true
		})
		f := newFetcher(t)
		f.attempts = 1
		_, err := f.Digest(t.Context(), host+"/app")
		want := fmt.Sprintf(`Get "http://%s/token?scope=repository%%3Aapp%%3Apull&service=x": the server answers 200 OK with a web page, not with a token`, host)
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// What a hosts.toml says of a registry's server holds for that server alone, also behind a proxy.
func TestOtherHostsGetNoSettingsOfARegistry(t *testing.T) {
	own := &tls.Config{InsecureSkipVerify: true, Certificates: make([]tls.Certificate, 1), RootCAs: x509.NewCertPool()} //nolint:gosec // it is never used
	for _, proxy := range []func(*http.Request) (*url.URL, error){nil, http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.example"})} {
		transport := (&Fetcher{}).transport("registry.example", false)
		transport.use(endpoint{tls: own})
		if proxy == nil {
			proxy = func(*http.Request) (*url.URL, error) { return nil, nil } //nolint:nilnil // no proxy
		}
		transport.near.Proxy = proxy
		for host, want := range map[string]*tls.Config{"registry.example": own, "tokens.example": {RootCAs: own.RootCAs}} {
			request := httptest.NewRequest(http.MethodGet, "https://"+host+"/", nil)
			carrier, err := transport.carrier(request)
			if err != nil {
				t.Fatal(err)
			}
			got := carrier.(*http.Transport).TLSClientConfig
			if got.InsecureSkipVerify != want.InsecureSkipVerify || len(got.Certificates) != len(want.Certificates) || got.RootCAs != want.RootCAs {
				t.Errorf("%s: %+v", host, got)
			}
		}
	}
}
