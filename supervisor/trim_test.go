package supervisor

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/tests/poll"
	"kurma.io/stager/tests/surroundings"
)

// numbered returns the numbers of a file's lines, "line N…". Each line must be whole.
func numbered(t *testing.T, path string) []int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var numbers []int
	for line := range strings.Lines(string(text)) {
		word, _, whole := strings.Cut(strings.TrimPrefix(line, "line "), " ")
		n, err := strconv.Atoi(word)
		if err != nil || !whole || !strings.HasSuffix(line, "\n") {
			t.Fatalf("%d bytes, a line that is not whole: %.50q", len(text), line)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

var filler = strings.Repeat("x", 200)

// The file of the messages stays within its limit, whoever has opened it how, and has the newest of them.
func TestTheFileOfMessagesIsLimited(t *testing.T) {
	for name, flag := range map[string]int{"appended to": os.O_APPEND, "not appended to": 0} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flag, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			m := NewMessages(file)
			m.Limit(1) // which is leastLimit
			const n = 20000
			for i := range n {
				fmt.Fprintf(m, "line %d %s\n", i, filler)
				if i%messageLimit == 0 && !poll.Until(surroundings.Patience, time.Millisecond, func() bool { return len(m.queue) == 0 }) {
					t.Fatal("the messages are not written")
				}
				if info, err := file.Stat(); err != nil || info.Size() > leastLimit+2*messageLimit*256 {
					t.Fatalf("%v: %d bytes", err, info.Size())
				}
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			numbers := numbered(t, path)
			info, err := os.Stat(path)
			if err != nil || info.Size() > leastLimit || len(numbers) < leastLimit/2/256 {
				t.Errorf("%v: %d lines, %d bytes, limit %d", err, len(numbers), info.Size(), leastLimit)
			}
			for i, number := range numbers {
				if number != n-len(numbers)+i {
					t.Fatalf("line %d of %d is %d", i, len(numbers), number)
				}
			}
		})
	}
}

// The newest lines are in the file at every moment, also when the process that takes older ones away is killed.
func TestAKillLosesNoMessages(t *testing.T) {
	const limit, kept = 16 << 10, 20 // lines that stay in any case
	if path := os.Getenv("SUPERVISOR_TEST_TRIM"); path != "" {
		writeTrimmed(path, limit)
	}
	path := filepath.Join(t.TempDir(), "log")
	for range 20 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "SUPERVISOR_TEST_TRIM="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(out)
		if _, err := in.Peek(1000); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(rand.IntN(10000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		text = text[:bytes.LastIndexByte(text, '\n')]
		last, err := strconv.Atoi(string(text[bytes.LastIndexByte(text, '\n')+1:]))
		if err != nil {
			t.Fatal(err)
		}
		there := wholeLines(t, path)
		for n := last - kept; n <= last; n++ {
			if !there[n] {
				t.Fatalf("%d lines, without line %d; %d is written", len(there), n, last)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// wholeLines returns the numbers of the lines of a file that are whole: the kernel cuts what a killed process is just
// writing at the end of a page.
func wholeLines(t *testing.T, path string) map[int]bool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	there := map[int]bool{}
	for line := range strings.Lines(string(text)) {
		var n int
		if _, err := fmt.Sscanf(line, "line %d ", &n); err == nil && line == fmt.Sprintf("line %d %s\n", n, filler) {
			there[n] = true
		}
	}
	return there
}

// writeTrimmed writes lines, and reports each to stdout, until this process is killed.
func writeTrimmed(path string, limit int64) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	for i := 0; err == nil; i++ {
		if _, err = fmt.Fprintf(file, "line %d %s\n", i, filler); err == nil {
			fmt.Fprintln(os.Stdout, i)
			err = trim(file, limit)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
