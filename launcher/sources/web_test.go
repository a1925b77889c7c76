package sources

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/signing"
	"kurma.io/stager/tests/surroundings"
)

// aci is an image with a file of so many bytes.
func aci(t *testing.T, size int) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range []struct {
		header  tar.Header
		content []byte
	}{
		{tar.Header{Name: "manifest"}, []byte(`{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/web"}`)},
		{tar.Header{Name: "rootfs/", Typeflag: tar.TypeDir, Mode: 0o755}, nil},
		{tar.Header{Name: "rootfs/f"}, bytes.Repeat([]byte("x"), size)},
	} {
		f.header.Size = int64(len(f.content))
		if err := w.WriteHeader(&f.header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// web serves files.
type web map[string][]byte

// ServeHTTP implements http.Handler.
func (w web) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	data, found := w[in.URL.Path]
	if !found {
		http.NotFound(out, in)
		return
	}
	out.Header().Set("ETag", fmt.Sprintf(`"%d"`, len(data)))
	http.ServeContent(out, in, "", time.Time{}, bytes.NewReader(data))
}

func TestAnACIOfAWebServer(t *testing.T) {
	surroundings.Root(t)
	key, err := signing.NewKey("test")
	if err != nil {
		t.Fatal(err)
	}
	data := aci(t, 100_000)
	var signature, public bytes.Buffer
	if err := errors.Join(signing.Sign(&signature, bytes.NewReader(data), key), key.WritePublic(&public)); err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(t.TempDir(), "keys.asc")
	if err := os.WriteFile(keys, public.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	ring, err := signing.ReadKeyRing(keys)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(web{
		"/a.aci": data, "/a.aci.asc": signature.Bytes(), "/b.aci": data,
		"/c.aci": aci(t, 1), "/c.aci.asc": signature.Bytes(), "/d.aci": []byte("no image"),
	})
	defer server.Close()
	tests := []struct{ name, path, words, signer string }{
		{"signed", "/a.aci?x=y", "", key.Fingerprint()},
		{"unsigned", "/b.aci", "", ""},
		{"signature of another file", "/c.aci", "invalid signature", ""},
		{"not an image", "/d.aci", "read archive", ""},
		{"not there", "/e.aci", "404 Not Found", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFetcher(t)
			f.Ring = ring
			image, err := f.Import(t.Context(), server.URL+tt.path)
			f.checkCache(t)
			if tt.words != "" {
				if err == nil || !strings.Contains(err.Error(), tt.words) || strings.Contains(err.Error(), f.Cache) {
					t.Errorf("%v, want %q and no file of the cache", err, tt.words)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if by, err := f.Store.Signer(image, ring); by != tt.signer {
				t.Errorf("signed by %q, %v", by, err)
			}
		})
	}
}

// TestAWebDownloadIsResumedByAnotherProcess ends downloads halfway, one by a broken connection and
// one by the end of the fetcher, and has the file change in between.
func TestAWebDownloadIsResumedByAnotherProcess(t *testing.T) {
	data := aci(t, 3_000_000)
	files := web{"/a.aci": data}
	var asked []string
	halve := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/a.aci" {
			http.NotFound(w, r)
			return
		}
		asked = append(asked, r.Header.Get("Range"))
		if halve {
			w.Header().Set("ETag", fmt.Sprintf(`"%d"`, len(data)))
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			_, _ = w.Write(data[:len(data)/2])
			panic(http.ErrAbortHandler)
		}
		files.ServeHTTP(w, r)
	}))
	defer server.Close()
	f := newFetcher(t)
	f.attempts = 1
	if _, err := f.Import(t.Context(), server.URL+"/a.aci"); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("half a download: %v", err)
	}
	halve = false
	image, err := f.Import(t.Context(), server.URL+"/a.aci")
	if err != nil {
		t.Fatal(err)
	}
	if len(asked) != 2 || !strings.HasPrefix(asked[1], "bytes=") {
		t.Errorf("asked for %q", asked)
	}
	halve = true
	_, _ = f.Import(t.Context(), server.URL+"/a.aci")
	halve = false
	files["/a.aci"] = aci(t, 3_000_001)
	changed, err := f.Import(t.Context(), server.URL+"/a.aci")
	if err != nil || changed.ID == image.ID {
		t.Errorf("the file that has changed: %v", err)
	}
	f.checkCache(t)
}

func TestAWebDownloadHasLimits(t *testing.T) {
	surroundings.Root(t)
	for _, tt := range []struct{ name, path, words string }{
		{"image", "/a.aci", "larger than maxImageSize in the configuration (1048576)"},
		{"signature", "/a.aci.asc", "larger than a signature may be (262144)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != tt.path {
					http.NotFound(w, r)
					return
				}
				const many = 1 << 10                                    // it ends, so that a launcher without a limit does not fill the disk
				for i := 0; i < many && r.Context().Err() == nil; i++ { // it has no length
					_, _ = w.Write(make([]byte, 64<<10))
				}
			}))
			defer server.Close()
			f := newFetcher(t)
			f.MaxSize = 1 << 20
			if _, err := f.Import(t.Context(), server.URL+"/a.aci"); err == nil || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("a file of 64 MiB: %v", err)
			}
			f.checkCache(t)
		})
	}
}

// A server that says how long its file is need not send it.
func TestALengthBeyondTheLimitIsRefusedUnread(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(1<<40))
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	f := newFetcher(t)
	f.MaxSize = 1 << 20
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := f.Import(ctx, server.URL+"/a.aci"); err == nil || !strings.Contains(err.Error(), "1099511627776 bytes or more") {
		t.Errorf("%v", err)
	}
	f.checkCache(t)
}

func TestNamesOfRegistriesAreKnown(t *testing.T) {
	for ref, want := range map[string]string{
		"docker.io/library/nginx": "docker://docker.io/library/nginx", "docker.io/x:1": "docker://docker.io/x:1",
		"localhost:5000/web": "docker://localhost:5000/web", "[::1]:5000/a/b@sha256:0": "docker://[::1]:5000/a/b@sha256:0",
		"docker.io": "", "docker.io/": "", "example.com/web": "", "example.com/web:1.0": "", "web:1": "", "web:1/": "", "web:latest/x": "",
		":/x": "", "a:99999/x": "", "": "", "/x": "", "docker://docker.io/x": "", "file:///x": "",
	} {
		if got, ok := OfRegistry(ref); got != want || ok != (want != "") {
			t.Errorf("OfRegistry(%q) = %q, %v; want %q", ref, got, ok, want)
		}
	}
}

// A stream of HTTP/2 that the server resets is a download that has broken off as any other.
func TestADownloadOverHTTP2IsResumed(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	var asked []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Proto+" "+r.Header.Get("Range"))
		if len(asked) == 1 {
			_, _ = w.Write(data[:len(data)/2])
			panic(http.ErrAbortHandler)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	f := newFetcher(t)
	file, done, err := f.get(t.Context(), download{client: server.Client(), url: server.URL, what: "file", digest: digest, size: -1})
	if err != nil {
		t.Fatalf("%v, asked for %q", err, asked)
	}
	defer done()
	if got, err := io.ReadAll(file); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if len(asked) != 2 || !strings.HasPrefix(asked[1], "HTTP/2.0 bytes=") {
		t.Errorf("asked for %q", asked)
	}
}
