package inject

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"kurma.io/stager/tests/poll"
)

// allowed are the names of files that come and go without a fault, with any size.
var allowed = regexp.MustCompile(`^((.*/)?pods/\.events.*|(out|logs)/.*|tmp|networks/[^/]*/run/cni/networks/[^/]*/(lock|last_reserved_ip.*)|networks/[^/]*/log)$`)

// things are what a world has at a moment, one a line.
func (w *world) things() []string {
	all := slices.Concat(w.files(), w.mounts(), w.processes(), w.groups(), w.network())
	sort.Strings(all)
	return all
}

// left compares the world with an earlier one, and waits a moment for processes that are ending.
func (w *world) left(before []string) []string {
	var changes []string
	poll.Until(10*time.Second, 50*time.Millisecond, func() bool {
		changes = differences(before, w.things())
		return changes == nil
	})
	return changes
}

// differences lists the lines that only one of two sorted lists has, but for processes that have gone: they may have been
// ending.
func differences(before, after []string) []string {
	var all []string
	for _, line := range before {
		if _, found := slices.BinarySearch(after, line); !found && !strings.HasPrefix(line, "process ") {
			all = append(all, "gone: "+line)
		}
	}
	for _, line := range after {
		if _, found := slices.BinarySearch(before, line); !found {
			all = append(all, "left: "+line)
		}
	}
	return all
}

func (w *world) files() []string {
	var all []string
	_ = filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(w.dir, path)
		if err != nil {
			return nil // it has gone meanwhile
		}
		if allowed.MatchString(name) {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		size := info.Size()
		if info.IsDir() || strings.HasSuffix(name, ".json") { // times are in JSON without their last zeros
			size = 0
		}
		all = append(all, fmt.Sprintf("file %s %s %d", name, info.Mode(), size))
		return nil
	})
	return all
}

// mounts lists the mounts that the world did not begin with: copies of the machine's vanish, or move, with their files.
func (w *world) mounts() []string {
	var all []string
	for id, path := range mountsByID() {
		if _, foreign := w.foreign[id]; !foreign {
			all = append(all, "mount "+path)
		}
	}
	return all
}

// mountsByID returns the mounts' folders by the mounts' IDs.
func mountsByID() map[string]string {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 4 {
			all[words[0]] = words[4]
		}
	}
	return all
}

// processes lists the processes that are not the test's, without zombies: the world's process 1 waits for them.
func (w *world) processes() []string {
	entries, _ := os.ReadDir("/proc")
	var all []string
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == 1 || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && len(line) > 0 {
			all = append(all, "process "+string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return all
}

// groups lists the cgroups of the world.
func (w *world) groups() []string {
	var all []string
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		roots, _ := filepath.Glob(pattern + w.cgroup)
		for _, root := range roots {
			_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					all = append(all, "cgroup "+path)
				}
				return nil
			})
		}
	}
	return all
}

// network lists the links and the rules of the world's network namespace.
func (w *world) network() []string {
	var all []string
	text, _ := os.ReadFile("/proc/net/dev")
	for line := range strings.Lines(string(text)) {
		if name, _, found := strings.Cut(line, ":"); found {
			all = append(all, "link "+strings.TrimSpace(name))
		}
	}
	if len(all) > 1 { // without another link no plugin has been here
		rules, _ := exec.Command("nft", "list", "ruleset").CombinedOutput()
		for line := range strings.Lines(string(rules)) {
			all = append(all, "rule "+counters.ReplaceAllString(strings.TrimSpace(line), ""))
		}
	}
	return all
}

// counters are the parts of rules that count packets.
var counters = regexp.MustCompile(`counter packets \d+ bytes \d+`)
