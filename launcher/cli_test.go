package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/launcher/daemon"

	"github.com/spf13/cobra"
)

func TestHelpIsPrintedForEachCommand(t *testing.T) {
	h := bareHost(t)
	for args, want := range map[string]string{
		"--help":             "Usage:\n  launcher COMMAND",
		"help":               "Usage:\n  launcher COMMAND",
		"run --help":         "-d, --detach",
		"help run":           "-d, --detach",
		"image list --help":  "Usage:\n  launcher image list",
		"help image import":  "Usage:\n  launcher image import SOURCE",
		"version":            "launcher ",
		"--version":          "launcher ",
		"version --json":     `{"version":"`,
		"--json version":     `{"version":"`,
		"__complete imag":    "image\tmanage images",
		"__complete run --d": "--detach\t",
	} {
		if out := h.run(strings.Fields(args)...); !strings.Contains(out, want) {
			t.Errorf("%s: %q, want %q in it", args, out, want)
		}
	}
	// None of these needs the configuration.
	h.text("config.json", "{")
	for _, args := range []string{"--help", "help run", "version", "completion bash"} {
		h.run(strings.Fields(args)...)
	}
}

// A usage error is one line that speaks of the launcher's commands and proposes near ones.
func TestUsageErrorsProposeWhatMayBeMeant(t *testing.T) {
	h := newHost(t)
	for args, want := range map[string]string{
		"rnu":                                `unknown command "rnu"; did you mean run or rm?`,
		"rnu --detach x":                     `unknown command "rnu"; did you mean run or rm?`,
		"stats-of p":                         `unknown command "stats-of"; launcher --help lists the commands`,
		"image lst":                          `image: unknown command "lst"; did you mean list?`,
		"network lst":                        `network: unknown command "lst"; did you mean list?`,
		"trust lst":                          `trust: unknown command "lst"; did you mean list?`,
		"image":                              "image: no command; want export, import, list, prune, rm",
		"help rnu":                           `unknown command "rnu"; did you mean run or rm?`,
		"help image lst":                     `image: unknown command "lst"; did you mean list?`,
		"run --detahc x":                     "run: unknown flag: --detahc; did you mean --detach?",
		"ps -x":                              "ps: unknown shorthand flag: 'x' in -x; launcher ps --help lists the options",
		"run p sh -c x":                      "run: unknown shorthand flag: 'c' in -c; launcher run --help lists the options, and those of the app come after --; docs/from-podman.md has",
		"rename x y":                         `unknown command "rename"; launcher --help lists the commands; docs/from-podman.md has those of podman and docker`,
		"run -p 80:65536 x":                  `run: invalid argument "80:65536" for "-p, --publish" flag: port "65536": want a number from 1 to 65535`,
		"run -p 80:80 --net host x":          "run: --publish contradicts --net host, with which apps listen on the host's own ports",
		"run -p 80:80 --net none x":          "run: --publish contradicts --net none",
		"validate -p 80:80 --net none x":     "validate: --publish contradicts --net none",
		"run --add-host a x":                 `run: invalid argument "a" for "--add-host" flag: want NAME:ADDRESS`,
		"run --add-host a:b x":               `run: invalid argument "a:b" for "--add-host" flag: "b" is not an IP address`,
		"run --add-host :1.1.1.1 x":          `run: invalid argument ":1.1.1.1" for "--add-host" flag: want NAME:ADDRESS`,
		"run --add-host a/b:1.1.1.1 x":       `run: invalid argument "a/b:1.1.1.1" for "--add-host" flag: want NAME:ADDRESS`,
		"run --add-host localhost:1.1.1.1 x": `run: invalid argument "localhost:1.1.1.1" for "--add-host" flag: localhost is the pod itself`,
		"run --dns one x":                    `run: invalid argument "one" for "--dns" flag: want an address`,
		"run --dns 1.1.1.1 --net host x":     "run: --dns contradicts --net host, with which apps have the host's name servers",
		"run --dns 1.1.1.1 --net none x":     "run: --dns contradicts --net none",
		"run --volumes-from x y":             "run: unknown flag: --volumes-from; launcher run --help lists the options, and those of the app come after --; docs/from-podman.md has",
		"ps x":                               "ps: want no arguments",
		"run --name":                         "run: flag needs an argument: --name",
		"run --net x example.com/one":        `run: no network "x": the configuration has no container_networks; --net host and --net none always work`,
		"run --net= example.com/one":         `run: invalid argument "" for "--net" flag: want a network`,
		"validate --net x p.json":            `validate: no network "x"`,
		"logs --tail x p":                    `logs: invalid argument "x" for "-n, --tail" flag: want a number of lines`,
		"logs --since yesterday p":           `want an RFC 3339 time or a duration such as "1h30m"`,
		"logs --stream stdin p":              "want stdout or stderr",
		"logs --stager --tail 2 p":           "logs: --stager shows the whole log; want no other option than --follow",
		"logs --stager -t p":                 "logs: --stager shows the whole log",
		"logs --stager --since 1h p":         "logs: --stager shows the whole log",
		"logs --stager --until 1h p":         "logs: --stager shows the whole log",
		"logs --stager --stream stdout p":    "logs: --stager shows the whole log",
		"image export x -":                   "image export: want a FILE, not -: the signature is written beside the file",
		"stop --time x p":                    `stop: invalid argument "x" for "-t, --time" flag: want a number of seconds`,
		"stop --time -3 p":                   "want a number of seconds",
		"stop --time 1e3 p":                  "want a number of seconds",
		"stop --time 99999999999 p":          "want a number of seconds",
		"run --cgroup-parent ../.. x":        "run: --cgroup-parent ../..: want a path below the root of the cgroups, or own",
		"run --cgroup-parent / x":            "run: --cgroup-parent /: want a path below the root of the cgroups, or own",
		"--state= ps":                        `invalid argument "" for "--state" flag: want a folder`,
		"ps --config=":                       `ps: invalid argument "" for "--config" flag: want a file`,
		"completion tcsh":                    "completion: want bash, zsh or fish",
		"image rm":                           "image rm: want IMAGE…",
		"monitor":                            "monitor: want the DIR of a pod; commands that leave a pod in the background start this",
	} {
		r := h.try(strings.Fields(args)...)
		last := r.stderr[strings.LastIndex(strings.TrimSuffix(r.stderr, "\n"), "\n")+1:]
		if r.code != 2 || !strings.HasPrefix(last, "launcher: ") || !strings.Contains(last, want) || r.stdout != "" {
			t.Errorf("%s: %+v, want exit status 2 and %q", args, r, want)
		}
	}
	if r := h.try(); r.code != 2 || !strings.Contains(r.stderr, "Usage:") || !strings.Contains(r.stderr, "launcher: no command; want ") {
		t.Errorf("no command: %+v", r)
	}
}

// Options may be before, between and after the arguments.
func TestOptionsMayStandAnywhere(t *testing.T) {
	h := newPod(t)
	want := "logs --follow --tail 2 one\n"
	for _, args := range []string{"logs --follow --tail 2 p", "logs p --tail 2 -f", "logs p -n2 one -f", "logs -fn 2 p one", "logs --tail=2 p one --follow"} {
		if out := h.run(strings.Fields(args)...); out != want {
			t.Errorf("%s: %q, want %q", args, out, want)
		}
	}
	if out := h.run("--json", "ps"); out != h.run("ps", "--json") || !strings.HasPrefix(out, "{") {
		t.Errorf("ps: %q", out)
	}
}

// An option of two names has one line of help and one entry of a completion.
func TestOptionsOfTwoNamesAreShownOnce(t *testing.T) {
	h := bareHost(t)
	for _, option := range []struct{ own, other, command string }{
		{"net", "network", "run"}, {"net", "network", "validate"}, {"exec", "entrypoint", "run"},
	} {
		help := h.run(option.command, "--help")
		if !strings.Contains(help, "(also --"+option.other+")") || strings.Contains(help, "  --"+option.other+" ") {
			t.Errorf("%s --help: %s\nwant one line for --%s and --%s", option.command, help, option.own, option.other)
		}
		if out := h.run("__complete", option.command, "--"); strings.Count(out, "--"+option.own+"\t") != 1 || strings.Contains(out, "\n--"+option.other) {
			t.Errorf("%s: %s\nwant --%s once", option.command, out, option.own)
		}
	}
}

// ls lists as list does.
func TestListsAreAlsoCalledLs(t *testing.T) {
	h := newHost(t)
	for _, group := range []string{"image", "network", "trust"} {
		out := h.run(group, "ls")
		if want := h.run(group, "list"); out != want || out == "" {
			t.Errorf("%s ls: %q, want %q", group, out, want)
		}
		if help, want := h.run(group, "ls", "--help"), "Aliases:\n  list, ls"; !strings.Contains(help, want) {
			t.Errorf("%s ls --help: %q, want %q in it", group, help, want)
		}
	}
}

// The network of a pod is its own without an option and with --net none.
func TestNetNoneIsAnOwnNetwork(t *testing.T) {
	h := newHost(t)
	h.run("run", "-d", "--name", "p", "--net", "none", "example.com/one")
	defer h.run("rm", "--force", "p")
	theirs := must(os.Readlink(fmt.Sprintf("/proc/%d/ns/net", h.ps()[0].PID)))
	if ours := must(os.Readlink("/proc/self/ns/net")); ours == theirs {
		t.Errorf("the pod has the host's network namespace %s", ours)
	}
}

// The shells take the scripts, and the launcher answers them with pods, apps and images.
func TestCompletionKnowsPodsAppsAndImages(t *testing.T) {
	h := newPod(t)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out := h.run("completion", shell); !strings.Contains(out, "__complete") {
			t.Errorf("%s: %.200q", shell, out)
		}
	}
	script := h.text("completion.bash", h.run("completion", "bash"))
	if out, err := exec.Command("bash", "-n", script).CombinedOutput(); err != nil {
		t.Errorf("bash: %v\n%s", err, out)
	}
	for args, want := range map[string]string{
		"logs ":    "p\trunning\n",
		"logs p ":  "one\n",
		"restart ": "p\trunning\n",

		"restart p/": "p/one\n",
		"stop ":      "p\trunning\n",
		"image rm ":  "example.com/one\t",
		"run ":       "example.com/one\t",
	} {
		words := strings.Split(args, " ")
		if out := h.run(append([]string{"__complete"}, words...)...); !strings.Contains(out, want) {
			t.Errorf("%s: %q, want %q in it", args, out, want)
		}
	}
}

// Every command has a man page that man's own formatter takes.
func TestEveryCommandHasAManPage(t *testing.T) {
	h := bareHost(t)
	dir := filepath.Join(h.dir, "man")
	h.run("man", dir)
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		text, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil {
			t.Error(err)
			return
		}
		for _, want := range []string{".TH ", ".SH NAME\n", ".SH SYNOPSIS\n", ".SH OPTIONS\n", `\fB\-\-config\fR`} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s has no %q", name, want)
			}
		}
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				check(sub)
			}
		}
	}
	check(rootCommand(&cli{}))
}

// Every command has a description, so that help, completion and man pages have one.
func TestEveryCommandIsDescribed(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Short == "" && !cmd.Hidden {
			t.Errorf("%s has no description", cmd.CommandPath())
		}
		if strings.HasSuffix(cmd.Short, ".") || strings.ToLower(cmd.Short[:min(1, len(cmd.Short))]) != cmd.Short[:min(1, len(cmd.Short))] {
			t.Errorf("%s: %q: want a phrase without capital and full stop", cmd.CommandPath(), cmd.Short)
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(rootCommand(&cli{}))
}

// The version reports how the program was built.
func TestVersionIsPrintedAsJSON(t *testing.T) {
	h := bareHost(t)
	var v struct{ Version, Go, Arch string }
	if err := json.Unmarshal([]byte(h.run("version", "--json")), &v); err != nil || v.Version == "" || v.Go == "" || v.Arch == "" {
		t.Errorf("%+v, %v", v, err)
	}
}

// Of several call-ins that have failed, and other errors beside them, each is reported.
func TestEachOfJoinedErrorsIsReported(t *testing.T) {
	file := must(os.Create(filepath.Join(t.TempDir(), "stderr")))
	defer file.Close()
	stderr := os.Stderr
	os.Stderr = file
	defer func() { os.Stderr = stderr }()
	err := errors.Join(&daemon.CallInError{Code: 3, Words: "status: one\n"}, errors.New("two"), &daemon.CallInError{Code: 4, Words: "status: three\n"})
	if code := exitStatus(t.Context(), err); code != 3 {
		t.Errorf("exit status %d", code)
	}
	const want = "status: one\nlauncher: two\nstatus: three\n"
	if got := string(must(os.ReadFile(file.Name()))); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
