package main

import (
	"io"
	"os"
	"strings"
	"testing"
)

// besides are the rows of docs/from-podman.md: commands of podman, and beside them the launcher's.
func besides(t *testing.T) [][2]string {
	t.Helper()
	var rows [][2]string
	for line := range strings.Lines(string(must(os.ReadFile("../docs/from-podman.md")))) {
		cells := strings.Split(line, " |")
		if theirs, ok := strings.CutPrefix(cells[0], "| `podman "); ok && len(cells) > 3 {
			rows = append(rows, [2]string{strings.Trim(theirs, "`"), strings.Trim(cells[1], " `")})
		}
	}
	return rows
}

// Each command of the launcher in docs/from-podman.md exists, with its options and arguments.
func TestCommandsBesidePodmansExist(t *testing.T) {
	rows, ours := besides(t), 0
	t.Chdir(t.TempDir())
	if err := os.WriteFile("web.env", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		line, isOurs := strings.CutPrefix(row[1], "launcher ")
		if !isOurs {
			continue // another program, or nothing
		}
		ours++
		root := rootCommand(&cli{stdout: io.Discard, stderr: io.Discard})
		cmd, words, err := root.Find(strings.Fields(line))
		if err != nil || !cmd.Runnable() || cmd.HasSubCommands() {
			t.Errorf("launcher %s: no such command: %v", line, err)
			continue
		}
		if err := cmd.ParseFlags(words); err != nil {
			t.Errorf("launcher %s: %v", line, err)
			continue
		}
		if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
			t.Errorf("launcher %s: %v", line, err)
		}
	}
	if ours < 30 {
		t.Errorf("the page has %d commands of the launcher", ours)
	}
}
