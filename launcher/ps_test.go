package main

import (
	"strings"
	"testing"

	"kurma.io/stager/launcher/daemon"
)

// ps --filter selects pods, and --format prints them by a template, or as JSON.
func TestPsFiltersAndFormats(t *testing.T) {
	h := newHost(t)
	for _, name := range []string{"first", "second"} {
		h.run("run", "--detach", "--name", name, "--label", "tier=front", "--label", name, "example.com/one")
	}
	h.run("stop", "second")
	for args, want := range map[string]string{
		"":                      "first\trunning\n",
		"--all":                 "first\trunning\nsecond\texited\n",
		"--filter state=exited": "second\texited\n",
		"--filter state=exited --filter name=first":                       "",
		"--all --filter name=first --filter name=second --filter app=one": "first\trunning\nsecond\texited\n",
		"--all --filter app=other":                                        "",
		"--filter network=none":                                           "",
		"--filter label=tier":                                             "first\trunning\n",
		"--all --filter label=tier=front --filter label=second":           "second\texited\n",
		"--all --filter label=tier=back --filter label=tier":              "",
	} {
		if out := h.run(append([]string{"ps", "--format", "{{.Name}}\t{{.State}}"}, strings.Fields(args)...)...); out != want {
			t.Errorf("ps %s: %q, want %q", args, out, want)
		}
	}
	if all := jsonLines[daemon.PodInfo](t, h.run("ps", "--format", "json")); len(all) != 1 || all[0].Name != "first" || all[0].Labels["tier"] != "front" {
		t.Errorf("ps --format json: %+v", all)
	}
	for _, args := range [][]string{{"--filter", "x=y"}, {"--filter", "name"}, {"--filter", "state=runing"}, {"--format", "{{"}, {"--format", "{{.Nothing}}"}} {
		if r := h.try(append([]string{"ps"}, args...)...); r.code != 2 || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("ps %q: %+v", args, r)
		}
	}
	h.run("rm", "-af")
}

// rm --all deletes the pods that have ended, and with --force all.
func TestRemoveAllPods(t *testing.T) {
	h := newHost(t)
	for _, name := range []string{"first", "second", "alive"} {
		h.run("run", "--detach", "--name", name, "example.com/one")
	}
	h.run("stop", "first", "second")
	h.run("rm", "--all")
	if all := h.ps(); len(all) != 1 || all[0].Name != "alive" || all[0].State != "running" {
		t.Errorf("after rm --all: %+v", all)
	}
	for _, args := range [][]string{{"rm"}, {"rm", "--all", "alive"}} {
		if r := h.try(args...); r.code != 2 || !strings.Contains(r.stderr, "rm: want a POD, or --all") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	h.run("rm", "-af")
	h.checkNoPods()
}
