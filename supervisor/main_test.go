package supervisor

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"testing"

	"kurma.io/stager/tests/surroundings"
)

// TestMain lets the test binary be a program of an app: one that writes
// SUPERVISOR_TEST_WRITE bytes to stdout in writes of SUPERVISOR_TEST_CHUNK bytes.
func TestMain(m *testing.M) {
	total, err := strconv.Atoi(os.Getenv("SUPERVISOR_TEST_WRITE"))
	if err != nil {
		surroundings.SettleAsRoot()
		os.Exit(m.Run())
	}
	size, err := strconv.Atoi(os.Getenv("SUPERVISOR_TEST_CHUNK"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	line := append(bytes.Repeat([]byte("x"), 99), '\n')
	chunk := bytes.Repeat(line, size/len(line)+1)[:size]
	for ; total > 0; total -= size {
		if _, err := os.Stdout.Write(chunk); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(0)
}
