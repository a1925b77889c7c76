package sources

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
	"golang.org/x/sys/unix"
)

// endpoint is a server that is asked for the images of a registry.
type endpoint struct {
	scheme    string // "" for the registry itself without a server in its file: HTTPS, or what Insecure allows
	host      string // HOST or HOST:PORT; "" as scheme
	path      string // that takes the place of /v2
	namespace string // the registry that a mirror is asked for, as the parameter ns
	own       bool   // it is the registry itself, to which its credentials go
	last      bool   // no other is asked after it

	pull, resolve bool // has layers and manifests by digest; says which digest a tag means
	tls           *tls.Config
	header        http.Header
	timeout       time.Duration // of a connection; 0 for the default
}

// name is for errors.
func (e endpoint) name(registry string) string {
	if e.host == "" {
		return registry
	}
	return e.scheme + "://" + e.host
}

// hostsFile is a hosts.toml, in containerd's format.
type hostsFile struct {
	hostSettings
	Server string                  `toml:"server"`
	Host   map[string]hostSettings `toml:"host"`
}

// hostSettings are those of a host, or of the server at the top.
type hostSettings struct {
	Capabilities []string       `toml:"capabilities"`
	CA           any            `toml:"ca"`     // a path or a list
	Client       any            `toml:"client"` // a path, or a list of paths and [CERTIFICATE, KEY]
	SkipVerify   bool           `toml:"skip_verify"`
	OverridePath bool           `toml:"override_path"`
	Header       map[string]any `toml:"header"` // a text or a list each
	DialTimeout  string         `toml:"dial_timeout"`
}

const dockerHub = "index.docker.io"

// endpointsOf returns the servers that are asked for a registry's images, in this order, by the first hosts.toml of
// these folders in dir: HOST_PORT_, HOST:PORT or HOST, and _default. Docker Hub's is docker.io. A folder without
// hosts.toml may have certificates for the registry, in Docker's form. Otherwise the registry alone is asked. An error
// names the file and the key.
func endpointsOf(dir, registry string) ([]endpoint, error) {
	alone := []endpoint{{path: "/v2", own: true, last: true, pull: true, resolve: true}}
	if dir == "" {
		return alone, nil
	}
	folder := registry
	if folder == dockerHub {
		folder = "docker.io"
	}
	candidates := []string{folder, "_default"}
	if i := strings.LastIndexByte(folder, ':'); i > 0 {
		candidates = slices.Insert(candidates, 0, folder[:i]+"_"+folder[i+1:]+"_")
	}
	for _, name := range candidates {
		path := filepath.Join(dir, name, "hosts.toml")
		text, err := os.ReadFile(path)
		var all []endpoint
		switch {
		case errors.Is(err, fs.ErrNotExist):
			path = filepath.Dir(path)
			all, err = dockersEndpoint(path, registry)
		case err == nil:
			all, err = parseHosts(string(text), filepath.Dir(path), registry)
		}
		if err != nil {
			return nil, fmt.Errorf("read hosts of registry: %s: %w", path, err)
		}
		if all != nil {
			return all, nil
		}
	}
	return alone, nil
}

// dockersEndpoint returns the registry with the certificates of a folder in Docker's form: *.crt are authorities, and
// NAME.cert is the client's certificate for the key NAME.key. Without any file it returns nil.
func dockersEndpoint(dir, registry string) ([]endpoint, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var authorities, clients []any
	for _, file := range files {
		stem, ext := strings.TrimSuffix(file.Name(), filepath.Ext(file.Name())), filepath.Ext(file.Name())
		switch ext {
		case ".crt":
			authorities = append(authorities, file.Name())
		case ".cert":
			clients = append(clients, []any{file.Name(), stem + ".key"})
		}
	}
	if authorities == nil && clients == nil {
		return nil, nil
	}
	e, err := hostSettings{CA: authorities, Client: clients}.endpoint("server", "", dir, registry)
	e.last = true
	return []endpoint{e}, err
}

func parseHosts(text, dir, registry string) ([]endpoint, error) {
	var file hostsFile
	known, err := toml.Decode(text, &file)
	if err != nil {
		return nil, err
	}
	if unknown := known.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("unknown key %s", unknown[0])
	}
	var all []endpoint
	done := make(map[string]bool)
	for _, key := range known.Keys() { // in the file's order
		if len(key) < 2 || key[0] != "host" || done[key[1]] {
			continue
		}
		done[key[1]] = true
		e, err := file.Host[key[1]].endpoint(key[:2].String(), key[1], dir, registry)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	server, err := file.endpoint("server", file.Server, dir, registry)
	if err != nil {
		return nil, err
	}
	server.last = true
	return append(all, server), nil
}

// endpoint returns the server at an address, by its settings. Key is for errors; "server" is that of the top.
func (s hostSettings) endpoint(key, address, dir, registry string) (e endpoint, err error) {
	e = endpoint{path: "/v2", own: true}
	if address != "" {
		if e, err = addressed(address, registry, s.OverridePath); err != nil {
			return e, fmt.Errorf("%s: %w", key, err)
		}
	}
	wrong := func(name string, err error) error {
		if key != "server" {
			name = key + "." + name
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := e.setCapabilities(s.Capabilities); err != nil {
		return e, wrong("capabilities", err)
	}
	e.tls = &tls.Config{InsecureSkipVerify: s.SkipVerify} //nolint:gosec // the administrator asks for it
	if e.tls.RootCAs, err = authorities(s.CA, dir); err != nil {
		return e, wrong("ca", err)
	}
	if e.tls.Certificates, err = certificates(s.Client, dir); err != nil {
		return e, wrong("client", err)
	}
	e.header = make(http.Header)
	for name, value := range s.Header {
		if e.header[http.CanonicalHeaderKey(name)], err = texts(value); err != nil {
			return e, wrong("header."+name, err)
		}
	}
	if s.DialTimeout != "" {
		if e.timeout, err = time.ParseDuration(s.DialTimeout); err != nil || e.timeout <= 0 {
			return e, wrong("dial_timeout", fmt.Errorf("%q: want a duration, such as \"10s\"", s.DialTimeout))
		}
	}
	return e, nil
}

// addressed returns the endpoint at an address of a hosts.toml: a URL, or HOST[:PORT] for HTTPS. The registry's own
// address is its own, with another path too.
func addressed(address, registry string, override bool) (endpoint, error) {
	whole := address
	if !strings.HasPrefix(whole, httpScheme) && !strings.HasPrefix(whole, httpsScheme) {
		whole = httpsScheme + whole
	}
	u, err := url.Parse(whole)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return endpoint{}, fmt.Errorf("%q: want a URL, such as \"https://mirror.example.com\"", address)
	}
	host := u.Host
	if registry == dockerHub && host == "registry-1.docker.io" || host == "docker.io" {
		host = dockerHub // their images and credentials are the same
	}
	e := endpoint{scheme: u.Scheme, host: host, path: strings.TrimSuffix(u.Path, "/"), own: host == registry}
	if !override && !strings.HasSuffix(e.path, "/v2") {
		e.path += "/v2"
	}
	if !e.own {
		e.namespace = registry
		if registry == dockerHub {
			e.namespace = "docker.io"
		}
	}
	return e, nil
}

func (e *endpoint) setCapabilities(all []string) error {
	if all == nil {
		e.pull, e.resolve = true, true
	}
	for _, one := range all {
		switch one {
		case "pull":
			e.pull = true
		case "resolve":
			e.resolve = true
		case "push":
		default:
			return fmt.Errorf("%q: want pull, resolve or push", one)
		}
	}
	return nil
}

// authorities returns the system's authorities with those of the files; nil for the system's alone.
func authorities(value any, dir string) (*x509.CertPool, error) {
	paths, err := texts(value)
	if err != nil || len(paths) == 0 {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(below(dir, path))
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in PEM", path)
		}
	}
	return pool, nil
}

// certificates returns those that the client has for the server. A path without a key has both.
func certificates(value any, dir string) (all []tls.Certificate, err error) {
	entries, isList := value.([]any)
	if !isList && value != nil {
		entries = []any{value}
	}
	for _, entry := range entries {
		pair, err := texts(entry)
		if err != nil || len(pair) == 0 || len(pair) > 2 {
			return nil, errors.New("want a file, or a list of files and pairs of certificate and key")
		}
		key := pair[0]
		if len(pair) == 2 && pair[1] != "" {
			key = pair[1]
		}
		one, err := tls.LoadX509KeyPair(below(dir, pair[0]), below(dir, key))
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// texts returns the texts of a value that is a text or a list.
func texts(value any) (all []string, err error) {
	entries, isList := value.([]any)
	if !isList && value != nil {
		entries = []any{value}
	}
	for _, entry := range entries {
		text, ok := entry.(string)
		if !ok {
			return nil, errors.New("want a text or a list of texts")
		}
		all = append(all, text)
	}
	return all, nil
}

func below(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
