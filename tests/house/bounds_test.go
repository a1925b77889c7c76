package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bounds says how each client, server and decoder of the product is bounded in what the other side makes it take: its
// redirects, headers, bodies, time, connections, and the depth or memory of what is decoded. Libraries' defaults are not
// bounds: a callback may replace them. json.Unmarshal is not in it: its caller has read the text, and bounds that. The
// metadata service has its own HTTP, with its limits in boot/metadata/http.go.
func bounds() map[string]string {
	return map[string]string{
		// Whoever names an image chooses the server.
		"launcher/sources/transport.go http.DefaultTransport": "boundedTransport: 10 redirects, 64 KiB of headers, bodies of 8 MiB but for " +
			"downloads, which MaxSize bounds; 30 s to connect, 1 min for headers, 60 KiB a minute; only to hosts that carrier allows",
		"launcher/sources/registry.go http.Client{":              "on a boundedTransport",
		"launcher/sources/registry.go transport.NewWithContext(": "the library's clients are on a boundedTransport; its callbacks do not reach it",
		"launcher/sources/web.go http.Client{":                   "on a boundedTransport",
		"launcher/sources/file.go json.NewDecoder(":              "8 MiB, by a LimitedReader; encoding/json goes 10,000 levels deep",
		"launcher/sources/file.go tar.NewReader(":                "images.Stream: 1,100 times the file and 128 MiB; 1 MiB of each header; maxFiles, maxFolders, MaxSize",
		"launcher/sources/read.go tar.NewReader(":                "images.Stream; maxMarks, maxMarkBytes; the import has the limits of images/extract.go",

		// An image's file.
		"launcher/images/decompress.go gzip.NewReader(":  "a window of 32 KiB; images.Stream",
		"launcher/images/decompress.go bzip2.NewReader(": "blocks of 900 KB; images.Stream",
		"launcher/images/decompress.go xz.NewReader(":    "xzGuard: dictionaries within images.Stream's expansion, maxBlocks",
		"launcher/images/decompress.go zstd.NewReader(":  "maxWindow, in little memory; images.Stream",
		"build/archive.go tar.NewReader(":                "1 MiB of each header; its callers bound entries and sizes, see images/extract.go",
		"build/read.go gzip.NewReader(":                  "for the program aci and the stager's own image, which the user makes or has signed",
		"build/read.go bzip2.NewReader(":                 "the same",
		"build/read.go xz.NewReader(":                    "the same",

		// A copy from an app.
		"launcher/copies/unpack.go tar.NewReader(": "1 MiB of each header; a copy that the user asked for fills what checkRoom found free",

		// The network driver, which an administrator chooses.
		"netplugins/remote/client.go http.Client{":     "no redirects; patience.request for all; maxAnswer",
		"netplugins/remote/client.go http.Transport{":  "64 KiB of headers; a connection for each request",
		"netplugins/remote/config.go json.NewDecoder(": "the configuration in memory, of which plugin.go reads maxConfig",

		// The servers of kurma-cri, for kubelet and for streams, and of metrics.
		"cri/server/server.go grpc.NewServer(":       "a socket of root's; 16 MiB of a message, 64 KiB of headers, 1,000 calls of a connection",
		"internal/loopback/loopback.go http.Server{": "ten seconds, MaxHeader, MaxStrangers connections",
		"cri/kurma-cri/status.go grpc.NewClient(":    "one call of the server on this machine, with its context's limit; 4 MiB of a message",

		// Texts that are in memory.
		"launcher/podplan/document.go json.NewDecoder(":      "a text that its caller has read; no more than the user who starts the pod gives",
		"internal/strictjson/explain.go json.NewDecoder(":    "a text that its caller has read, and bounds",
		"internal/strictjson/strictjson.go json.NewDecoder(": "the same",
	}
}

// Every client, server and decoder of the product is in the table of bounds, and nothing else is.
func TestClientsServersAndDecodersHaveBounds(t *testing.T) {
	t.Parallel()
	other := regexp.MustCompile(`^(examples|build/out|dist|bin|tools|\.)|(^|/)(tests|testdata|testdriver)(/|$)|test(/|\.go$)`)
	makes := regexp.MustCompile(`\bhttp\.(DefaultTransport|DefaultClient|(Client|Server|Transport)\{|(Get|Post|Head|ListenAndServe|Serve)\()` +
		`|\bgrpc\.New(Server|Client)\(|\btransport\.NewWithContext\(|\bremote\.(Get|Head|Image|Index)\(` +
		`|\b(json|xml|gob)\.NewDecoder\(|\b(tar|gzip|bzip2|xz|zstd|zlib|flate)\.NewReader\(`)
	var found, listed []string
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel("../..", path)
		switch {
		case err != nil:
			return err
		case name != "." && other.MatchString(name) && entry.IsDir():
			return filepath.SkipDir
		case entry.IsDir() || other.MatchString(name) || filepath.Ext(name) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			code, _, _ := strings.Cut(line, "//")
			for _, one := range makes.FindAllString(code, -1) {
				found = append(found, name+" "+one)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for one := range bounds() {
		if !left(t, one) {
			listed = append(listed, one)
		}
	}
	slices.Sort(listed)
	if diff := cmp.Diff(listed, unique(found)); diff != "" {
		t.Errorf("the table of bounds (-) and the code (+) differ:\n%s", diff)
	}
}
