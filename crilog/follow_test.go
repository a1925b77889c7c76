package crilog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// following runs Read with Follow and returns its output once it has ended.
type following struct {
	output
	seen chan struct{} // gets a value after records, if the test waits for one
	done chan error
}

func follow(ctx context.Context, dir string, opts ReadOptions) *following {
	f := &following{seen: make(chan struct{}, 1), done: make(chan error, 1)}
	opts.Follow = true
	go func() {
		f.done <- Read(ctx, dir, opts, func(e Entry) error {
			select {
			case f.seen <- struct{}{}:
			default:
			}
			return f.entry(e)
		})
	}()
	return f
}

func (f *following) wait(t *testing.T) {
	t.Helper()
	if err := <-f.done; err != nil {
		t.Fatal(err)
	}
}

func TestFollowReadsAcrossRotationsUntilClose(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	f := follow(t.Context(), dir, all)
	w := open(t, dir, Options{MaxSize: 2000, MaxFiles: 1 << 20})
	rnd := rand.New(rand.NewPCG(4, 4))
	var want []byte
	for range 60 {
		chunk := randomChunk(rnd)
		chunk = chunk[:min(len(chunk), 9000)]
		w.Append(Stdout, chunk)
		want = append(want, chunk...)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f.wait(t)
	if !bytes.Equal(f.out.Bytes(), want) {
		t.Errorf("followed %d bytes, want the %d written", f.out.Len(), len(want))
	}
}

// A follower that waits for the folder reads each log to its end: it does not take the lock of a
// writer that is just opening the log for the lock of one that has ended.
func TestFollowersWaitForAWriterThatOpensTheLog(t *testing.T) {
	root := t.TempDir()
	for i := range 300 {
		dir := filepath.Join(root, strconv.Itoa(i))
		f := follow(t.Context(), dir, all)
		w := open(t, dir, Options{})
		w.Append(Stdout, []byte("words\n"))
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		f.wait(t)
		if f.out.String() != "words\n" {
			t.Fatalf("log %d: followed %q", i, f.out.String())
		}
	}
}

// The folder of a log that is followed is removed, and the follower has read all of it.
func TestFollowEndsWithTheFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "app")
	w := open(t, dir, Options{})
	w.Append(Stdout, []byte("first\n"))
	f := follow(t.Context(), dir, all)
	<-f.seen
	w.Append(Stdout, []byte("last\n"))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	f.wait(t)
	if f.out.String() != "first\nlast\n" {
		t.Errorf("followed %q", f.out.String())
	}
	_ = w.Close()
}

func TestFollowSeesPartialLineAtOnce(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{})
	f := follow(t.Context(), dir, all)
	w.Append(Stdout, []byte("prompt> "))
	<-f.seen
	w.Append(Stdout, []byte("answer\n"))
	<-f.seen
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f.wait(t)
	if got := f.out.String(); got != "prompt> answer\n" {
		t.Errorf("followed %q", got)
	}
}

func TestFollowBeginsWithTheTail(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{})
	w.Append(Stdout, []byte("old\nlast\n"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := follow(ctx, dir, ReadOptions{Tail: 1})
	<-f.seen
	w.Append(Stdout, []byte("new\n"))
	<-f.seen
	cancel()
	if err := <-f.done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if got := f.out.String(); got != "last\nnew\n" {
		t.Errorf("followed %q", got)
	}
}

// The record that a follower found torn is taken back and another comes in its place.
func TestFollowReadsTornRecordAgain(t *testing.T) {
	dir := writeFiles(t, at1+"stdout F x\n"+at2+"stdout F torn")
	f, err := os.OpenFile(fileName(dir, 1), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := follow(t.Context(), dir, all)
	<-got.seen
	if err := f.Truncate(int64(len(at1 + "stdout F x\n"))); err != nil {
		t.Fatal(err)
	}
	w := open(t, dir, Options{})
	w.Append(Stdout, []byte("y\n"))
	<-got.seen
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got.wait(t)
	if s := got.out.String(); s != "x\ny\n" {
		t.Errorf("followed %q", s)
	}
}

func TestASlowFollowerReadsTheKeptFiles(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{MaxSize: 1024, MaxFiles: 2})
	w.Append(Stdout, []byte("first\n"))
	entered, leave := make(chan struct{}), make(chan struct{})
	var got output
	done := make(chan error, 1)
	go func() {
		done <- Read(t.Context(), dir, ReadOptions{Follow: true, Tail: -1}, func(e Entry) error {
			if got.all.Len() == 0 {
				close(entered)
				<-leave
			}
			return got.entry(e)
		})
	}()
	<-entered
	for i := range 50 {
		w.Append(Stdout, []byte(fmt.Sprintf("%0900d\n", i)))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	close(leave)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("first\n%0900d\n%0900d\n%0900d\n", 0, 48, 49)
	if got.all.String() != want {
		t.Errorf("followed %d bytes, want the file at hand and the kept ones, %d", got.all.Len(), len(want))
	}
}

const killedWriter = "CRILOG_TEST_WRITER"

// It is the child of TestFollowEndsWhenWriterIsKilled: it writes and hangs.
func TestChildWritesUntilItIsKilled(t *testing.T) {
	dir := os.Getenv(killedWriter)
	if dir == "" {
		return
	}
	w := open(t, dir, Options{})
	w.Append(Stdout, []byte("last words"))
	select {}
}

func TestFollowEndsWhenWriterIsKilled(t *testing.T) {
	dir := t.TempDir()
	f := follow(t.Context(), dir, all)
	child := exec.Command("/proc/self/exe", "-test.run=^TestChildWritesUntilItIsKilled$")
	child.Env = append(os.Environ(), killedWriter+"="+dir)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	<-f.seen
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	child.Wait()
	f.wait(t)
	if got := f.out.String(); got != "last words" {
		t.Errorf("followed %q", got)
	}
}
