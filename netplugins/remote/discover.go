package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// socketDir has the sockets of drivers. A driver without one is described by a file in specDirs:
// NAME.spec has its address; NAME.json also has its keys for TLS. Each may be in a folder NAME.
const socketDir = "/run/docker/plugins"

func specDirs() []string { return []string{"/etc/docker/plugins", "/usr/lib/docker/plugins"} }

// errNotFound is wrapped by find's error if a driver is not there yet.
var errNotFound = errors.New("driver not found")

// specification is a driver's address and keys, as in a NAME.json.
type specification struct {
	Addr      string
	TLSConfig *tlsFiles
}

// tlsFiles are paths in the root of the specification.
type tlsFiles struct {
	CAFile, CertFile, KeyFile string
	InsecureSkipVerify        bool
}

// target is where a driver listens.
type target struct {
	root    *root       // that has the socket
	network string      // unix or tcp
	address string      // path of a socket in the root, or host:port
	tls     *tls.Config // nil for no TLS
}

// find looks a driver up in each root.
func find(roots []*root, name string) (target, error) {
	var paths []string
	for _, r := range roots {
		where, err := r.find(name)
		if !errors.Is(err, errNotFound) {
			return where, err
		}
		paths = append(paths, r.path)
	}
	return target{}, fmt.Errorf("%w: no %s/%s.sock, and no %s.spec or %s.json in %s; looked below %s",
		errNotFound, socketDir, name, name, name,
		strings.Join(specDirs(), " or "), strings.Join(paths, " and "))
}

// find looks a driver up as Docker does: first its socket, then its specification. Without either, the error is
// errNotFound.
func (r *root) find(name string) (target, error) {
	for _, file := range []string{name + ".sock", name + "/" + name + ".sock"} {
		if p := path.Join(socketDir, file); r.isSocket(p) {
			return target{root: r, network: "unix", address: p}, nil
		}
	}
	for _, dir := range specDirs() {
		inside := name + "/" + name
		for _, file := range []string{name + ".spec", inside + ".spec", name + ".json", inside + ".json"} {
			p := path.Join(dir, file)
			data, err := r.readFile(p)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
				continue
			}
			if err != nil {
				return target{}, err
			}
			t, err := r.target(p, data)
			if err != nil {
				return target{}, fmt.Errorf("%s: %w", p, err)
			}
			return t, nil
		}
	}
	return target{}, errNotFound
}

// target reads a specification.
func (r *root) target(file string, data []byte) (target, error) {
	s := specification{Addr: strings.TrimSpace(string(data))}
	if path.Ext(file) == ".json" {
		s = specification{}
		if err := json.Unmarshal(data, &s); err != nil {
			return target{}, err
		}
	}
	u, err := url.Parse(s.Addr)
	if err != nil {
		return target{}, err
	}
	switch u.Scheme {
	case "unix":
		if u.Host != "" || u.Path == "" {
			return target{}, fmt.Errorf("address %q: want unix:///PATH", s.Addr)
		}
		return target{root: r, network: "unix", address: u.Path}, nil
	case "tcp", "http", "https":
		return r.tcpTarget(s, u)
	}
	return target{}, fmt.Errorf("address %q: want unix://, tcp://, http:// or https://", s.Addr)
}

func (r *root) tcpTarget(s specification, u *url.URL) (t target, err error) {
	t = target{network: "tcp", address: u.Host}
	if u.Hostname() == "" {
		return target{}, fmt.Errorf("address %q has no host", s.Addr)
	}
	if u.Port() == "" {
		t.address = net.JoinHostPort(u.Hostname(), map[bool]string{true: "443", false: "80"}[u.Scheme == "https"])
	}
	if u.Scheme == "https" || s.TLSConfig != nil {
		t.tls, err = r.tlsConfig(s.TLSConfig, u.Hostname())
	}
	return t, err
}

// tlsConfig reads a driver's keys. As with Docker, a driver without a CA file is not verified.
func (r *root) tlsConfig(files *tlsFiles, host string) (*tls.Config, error) {
	if files == nil {
		files = &tlsFiles{}
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: host,
		//nolint:gosec // the operator's choice, in the specification
		InsecureSkipVerify: files.InsecureSkipVerify || files.CAFile == "",
	}
	if files.CAFile != "" {
		data, err := r.readFile(files.CAFile)
		if err != nil {
			return nil, fmt.Errorf("CAFile: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("CAFile: %s has no certificate", files.CAFile)
		}
	}
	if files.CertFile == "" && files.KeyFile == "" {
		return c, nil
	}
	pair, err := r.keyPair(files)
	c.Certificates = []tls.Certificate{pair}
	return c, err
}

// keyPair reads the certificate by which the driver knows its caller.
func (r *root) keyPair(files *tlsFiles) (tls.Certificate, error) {
	certificate, err := r.readFile(files.CertFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("CertFile: %w", err)
	}
	key, err := r.readFile(files.KeyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("KeyFile: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("CertFile: %w", err)
	}
	return pair, nil
}

// dial connects to a driver.
func (t target) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	if t.network != "unix" {
		return d.DialContext(ctx, t.network, t.address)
	}
	socket, err := t.root.open(t.address, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	// By the descriptor: the socket is in another root, and its path may be longer than unix(7) allows.
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", socket.Fd()))
}
