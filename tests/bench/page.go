package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// printHead begins the page that the bench prints, which is docs/performance.md.
func printHead(runs int, plot string) error {
	cpu, err := firstMatch("/proc/cpuinfo", `(?m)^model name\s*: (.*)$`)
	if err != nil {
		return err
	}
	load, err := firstMatch("/proc/loadavg", `^\S+`)
	if err != nil {
		return err
	}
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return os.NewSyscallError("uname", err)
	}
	fmt.Printf(`# Performance

`+"`make bench`"+` printed this page: the stager beside other programs, in one run on one machine, in turns. A ratio below 1
means that the stager took less. In parentheses are the quartiles of the rounds. Absolute times depend on the machine;
run it on yours.

The machine: %d processors (%s), Linux %s,
load %s at the start, %s. The figure of most rows is the median of %d rounds.

`, runtime.NumCPU(), cpu, unix.ByteSliceToString(kernel.Release[:]), load, time.Now().UTC().Format(time.DateOnly), runs)
	for _, peer := range []string{"runc", "crun", "conmon", "podman"} {
		version, err := exec.Command(peer, "--version").Output()
		if err != nil {
			return fmt.Errorf("ask %s for its version: %w", peer, err)
		}
		line, _, _ := strings.Cut(string(version), "\n")
		fmt.Printf("- %s\n", line)
	}
	if plot != "" {
		fmt.Printf("\n![times beside crun, as in the tables](%s)\n", filepath.Base(plot))
	}
	return nil
}

// firstMatch returns the last group of the pattern's first match in a file.
func firstMatch(file, pattern string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(pattern).FindStringSubmatch(string(text))
	if found == nil {
		return "", fmt.Errorf("read %s: nothing matches %s", file, pattern)
	}
	return found[len(found)-1], nil
}
