// Package dockerregistry runs a registry of images for tests.
package dockerregistry

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"kurma.io/stager/tests/surroundings"
)

// Run runs Debian's docker-registry, which is empty, on the loopback device until stop, or until the test's end. It
// returns the registry's address, HOST:PORT, when the registry listens; the registry speaks plain HTTP. inside are the words
// by which a command runs in a network namespace, none for this one.
func Run(t *testing.T, inside ...string) (address string, stop func()) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: info}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: \"127.0.0.1:0\"}\n", t.TempDir())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	argv := slices.Concat(inside, []string{"docker-registry", "serve", config})
	cmd := exec.Command(argv[0], argv[1:]...)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := surroundings.Start(cmd); err != nil {
		t.Fatal(err)
	}
	stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	t.Cleanup(stop)
	listening := regexp.MustCompile(`"listening on ([^"]+)"`)
	var said []byte
	if !surroundings.Eventually(t, "the registry listens", func() bool {
		said, _ = os.ReadFile(log.Name())
		if found := listening.FindSubmatch(said); found != nil {
			address = string(found[1])
		}
		return address != ""
	}) {
		t.Fatalf("the registry says:\n%s", said)
	}
	return address, stop
}
