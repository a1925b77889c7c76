// Command testdriver is a network driver for tests, written with Docker's go-plugins-helpers: a bridge for
// each network, and a pair of virtual Ethernet devices for each endpoint.
//
//	testdriver [--addresses SUBNET] [--scope SCOPE] [--tls KEYS] ADDRESS DIR
//
// It listens on ADDRESS: the path of a socket, or HOST:PORT, with TLS if there are keys. KEYS is a folder with its
// certificate, cert.pem and key.pem, and ca.pem, by which it knows its callers. It writes each request as a line of
// JSON to DIR/calls. DIR/faults, which a test may write at any time, has the methods that it answers wrongly.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/docker/go-plugins-helpers/network"
)

func main() {
	addresses := flag.String("addresses", "", "the subnet of which the driver itself gives addresses")
	scope := flag.String("scope", network.LocalScope, "the driver's scope")
	keys := flag.String("tls", "", "the folder of the keys for TLS")
	flag.Parse()
	front, err := listen(flag.Arg(0), *keys)
	if err == nil {
		err = run(front, flag.Arg(1), newBridges(*addresses, *scope))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// listen listens on a socket, or on an address, there with keys for callers with a certificate.
func listen(address, keys string) (net.Listener, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return net.Listen("unix", address)
	}
	if keys == "" {
		return net.Listen("tcp", address)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(keys, "cert.pem"), filepath.Join(keys, "key.pem"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(keys, "ca.pem"))
	if err != nil {
		return nil, err
	}
	callers := x509.NewCertPool()
	callers.AppendCertsFromPEM(ca)
	return tls.Listen("tcp", address, &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: callers,
	})
}

// run serves the driver, which the helpers' handler does on a socket of its own behind the recorder.
func run(front net.Listener, dir string, driver network.Driver) error {
	inner := filepath.Join(dir, "inner.sock")
	behind, err := net.Listen("unix", inner)
	if err != nil {
		return err
	}
	go func() { _ = network.NewHandler(driver).Serve(behind) }()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "driver"})
	proxy.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", inner)
	}}
	server := http.Server{Handler: &recorder{dir: dir, next: proxy}} //nolint:gosec // a test's
	return server.Serve(front)
}

// fault is an answer that a test asks for.
type fault struct {
	Status int    // of the answer
	Body   string // of the answer
	Hang   bool   // no answer
	After  bool   // the driver does what it is asked for, and only its answer is replaced
}

// recorder writes requests down, and answers those of faults.
type recorder struct {
	dir  string
	next http.Handler

	mu sync.Mutex // guards the file of calls
}

// ServeHTTP implements http.Handler.
func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	method := filepath.Ext(request.URL.Path)[1:]
	if err := r.record(method, body); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	var faults map[string]fault
	if data, err := os.ReadFile(filepath.Join(r.dir, "faults")); err == nil {
		_ = json.Unmarshal(data, &faults)
	}
	f, is := faults[method]
	switch {
	case !is:
		r.next.ServeHTTP(w, request)
		return
	case f.Hang:
		<-request.Context().Done()
		return
	case f.After:
		r.next.ServeHTTP(discard{make(http.Header)}, request)
	}
	w.WriteHeader(f.Status)
	_, _ = io.WriteString(w, f.Body)
}

func (r *recorder) record(method string, body []byte) error {
	if len(body) == 0 {
		body = []byte("null")
	}
	line, err := json.Marshal(map[string]any{"method": method, "body": json.RawMessage(body)})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	file, err := os.OpenFile(filepath.Join(r.dir, "calls"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(append(line, '\n'))
	return err
}

// discard is an http.ResponseWriter of which nobody reads.
type discard struct{ header http.Header }

// Header implements http.ResponseWriter.
func (d discard) Header() http.Header { return d.header }

// Write implements http.ResponseWriter.
func (d discard) Write(data []byte) (int, error) { return len(data), nil }

// WriteHeader implements http.ResponseWriter.
func (d discard) WriteHeader(int) {}
