package images

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/tests/poll"

	"golang.org/x/sys/unix"
)

// A process that writes a record again can be killed before the new one has its name.
func TestNewRecordsOfKilledWritersAreCollected(t *testing.T) {
	s := newStore(t)
	image, err := s.importData(t, archive(t, testManifest, dir("rootfs")))
	if err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(image.Dir, recordFile+jsonfile.Unfinished)
	if err := os.WriteFile(fresh, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want := 1; want >= 0; want-- {
		if n, err := s.Unfinished(); n != want || err != nil {
			t.Errorf("Unfinished = %d, %v; want %d", n, err, want)
		}
		if n, err := s.Collect(); n != want || err != nil {
			t.Errorf("Collect = %d, %v; want %d", n, err, want)
		}
	}
	if _, err := os.Lstat(fresh); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
	if _, err := s.Get(image.ID); err != nil {
		t.Error(err)
	}
}

// A record that is being written is not a leftover: its writer has the store's lock, as Collect has.
func TestARecordIsWrittenAgainUnderTheLock(t *testing.T) {
	s := newStore(t)
	path, ring := signedImage(t, archive(t, testManifest, dir("rootfs")))
	image, err := s.Import(t.Context(), path, ring, nil)
	if err == nil { // breaks the seal
		err = os.Chtimes(filepath.Join(image.Dir, sigFile), time.Time{}, time.Unix(1, 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	lock, err := s.lockStore(unix.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	var file unix.Stat_t
	if err := unix.Fstat(int(lock.Fd()), &file); err != nil {
		t.Fatal(err)
	}
	signed := make(chan error, 1)
	go func() {
		_, err := s.Signer(image, ring)
		signed <- err
	}()
	waiting := func() bool {
		locks, err := os.ReadFile("/proc/locks")
		for line := range strings.Lines(string(locks)) {
			if strings.Contains(line, "-> FLOCK") && strings.Contains(line, fmt.Sprintf(":%d ", file.Ino)) {
				return true
			}
		}
		return err != nil || len(signed) > 0
	}
	if !poll.Until(time.Minute, 10*time.Millisecond, waiting) || len(signed) > 0 {
		t.Error("the record is written while another process has the lock")
	}
	if err := errors.Join(lock.Close(), <-signed); err != nil {
		t.Fatal(err)
	}
	before := image.Record.Head.Seal
	if image, err = s.Get(image.ID); err != nil || image.Record.Head.Seal != before {
		t.Errorf("%v: the new seal is not recorded", err)
	}
}
