package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/podplan"
	"kurma.io/stager/names"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func TestMemoryIsReadAsPodmanAndAppcWriteIt(t *testing.T) {
	for text, want := range map[string]string{"512m": "512Mi", "1g": "1Gi", "64k": "64Ki", "100b": "100", "100": "100", "5Mi": "5Mi", "5M": "5M"} {
		if got, err := podplan.Memory(text); got != want || err != nil {
			t.Errorf("podplan.Memory(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "0m", "m", "1.5g", "-1", "1x", "1 m"} {
		if got, err := podplan.Memory(text); err == nil {
			t.Errorf("podplan.Memory(%q) = %q", text, got)
		}
	}
}

func TestVolumesAreNamedOrHaveATarget(t *testing.T) {
	var v volumeFlags
	for _, text := range []string{"/tmp", "/run/../e:mode=0700"} {
		if err := v.addEmpty(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"tmp": "want /TARGET", "": "want /TARGET", "/t:size=64m": `"size=64m": want mode=MODE, octal; the folder is on the disk`, "/t:": `"": want mode=MODE`,
		"/t:mode=10000": "want mode=MODE", "/t:mode=8": "want mode=MODE", "/e": `target "/e" is given twice`,
	} {
		if err := v.addEmpty(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--tmpfs %s: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"data=/srv", "/host:/in:ro", "/host:/other", "/a:/b/../c:rw", "Data_1.x:/d/:ro", "/l:/l:ro,z", "/m:/m:Z"} {
		if err := v.add(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if diff := cmp.Diff([]podplan.Mount{{Target: "/tmp", Mode: "1777"}, {Target: "/e", Mode: "0700"}, {Source: "/host", Target: "/in", ReadOnly: true}, {Source: "/host", Target: "/other"}, {Source: "/a", Target: "/c"}, {Volume: "Data_1.x", Target: "/d", ReadOnly: true}, {Source: "/l", Target: "/l", ReadOnly: true}, {Source: "/m", Target: "/m"}}, v.mounts); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{
		"data=/tmp":     `volume "data" is given twice`,
		"/x:/in":        `target "/in" is given twice`,
		"/x":            "want VOLUME:/TARGET[:ro], /PATH:/TARGET[:ro] or NAME=/PATH",
		"/x:y":          "want VOLUME:/TARGET[:ro], /PATH:/TARGET[:ro]",
		"/x:/y:rx":      `"rx": want ro or rw`,
		"/x:/y:ro:more": "want VOLUME:/TARGET[:ro], /PATH:/TARGET[:ro]",
		"x":             "or NAME=/PATH",
		"x=y":           "or NAME=/PATH",
		"x/z:/y":        `"x/z" is neither a path, which begins with / or ./, nor the name of a volume`,
		".x:/y":         `".x" is neither`,
		":/y":           `"" is neither`,
		"x:y":           "want VOLUME:/TARGET[:ro]",
		"/x:/in/y":      `target "/in/y" is inside the target "/in" of another volume; mounts cannot be nested`,
		"/x:/":          `target "/tmp" is inside the target "/" of another volume; mounts cannot be nested`,
	} {
		if err := v.add(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A shell's paths are relative and have links, such as /var/run; a manifest's have neither.
func TestVolumesArePathsOfTheShell(t *testing.T) {
	dir := must(filepath.EvalSymlinks(t.TempDir()))
	t.Chdir(dir)
	if err := errors.Join(os.Mkdir("real", 0o755), os.Symlink("real", "link")); err != nil {
		t.Fatal(err)
	}
	var v volumeFlags
	for text, want := range map[string]string{
		".:/a": dir, "..:/b": filepath.Dir(dir), "./real:/c": dir + "/real", "link/../real/x:/d": "",
		"./link:/e": dir + "/real", dir + "/link/:/f": dir + "/real", "./link/missing:/g": dir + "/link/missing",
	} {
		v.mounts = nil
		if err := v.add(text); (err == nil) != (want != "") || err == nil && v.mounts[0].Source != want {
			t.Errorf("%s: %v, %v; want source %q", text, v.mounts, err, want)
		}
	}
	if err := v.add("data=./link"); err != nil || v.named["data"] != dir+"/real" {
		t.Errorf("data is %q, %v", v.named["data"], err)
	}
}

func TestRunOptionsAreChecked(t *testing.T) {
	h := newHost(t)
	pod := h.text("pod.json", `{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"id":"`+h.listed()["example.com/one"].ID+`"}}]}`)
	for args, want := range map[string]string{
		"--memory much example.com/one":                  "want a number of bytes such as 512m",
		"--cpus 0 example.com/one":                       "want a number of CPUs",
		"--cpus 1,5 example.com/one":                     "want a number of CPUs",
		"--user : example.com/one":                       "want USER[:GROUP]",
		"--workdir tmp example.com/one":                  "want an absolute path",
		"--cap-add all example.com/one":                  "name each capability",
		"--cap-add NET_ADMIM x":                          `unknown capability "NET_ADMIM"; the nearest name is NET_ADMIN`,
		"--cap-add cap_sysadmin x":                       `unknown capability "cap_sysadmin"; the nearest name is SYS_ADMIN`,
		"--cap-add CAP_ALL x":                            `unknown capability "CAP_ALL"; capabilities(7) lists them`,
		"--cap-add FOO x":                                `unknown capability "FOO"; capabilities(7) lists them`,
		"--cap-drop CHOWNS x":                            `unknown capability "CHOWNS"; the nearest name is CHOWN`,
		"--env NOT_SET_x example.com/one":                `no variable "NOT_SET_x" in your environment`,
		"--env =x example.com/one":                       "want NAME=VALUE",
		"--restart maybe example.com/one":                "want never, on-failure, always",
		"--exit-policy x example.com/one":                "want never, all, failure",
		"--hostname a_b example.com/one":                 `invalid argument "a_b" for "--hostname" flag: want letters, digits and '-' between dots, with a letter or digit first and last`,
		"--hostname " + strings.Repeat("h", 64) + " x":   `flag: 64 bytes between dots; want 63 at most`,
		"--hostname " + strings.Repeat("h.", 40) + "h x": `flag: 81 bytes; want 64 at most`,
		"--hostname= example.com/one":                    `invalid argument "" for "--hostname" flag: want letters`,
		"--name= x":                                      `invalid argument "" for "--name" flag: want a name`,
		"--cgroup-parent= x":                             `invalid argument "" for "--cgroup-parent" flag: want a cgroup`,
		"--network none --net host x":                    `invalid argument "host" for "--net" flag: "host" and "none" stand alone`,
		"--privileged --cap-drop ALL x":                  "run: --cap-drop contradicts --privileged, which gives all capabilities",
		"--label =x x":                                   "want KEY or KEY=VALUE",
		"--stop-timeout 1m x":                            "want a number of seconds",
		"--stop-timeout -1 x":                            "want a number of seconds",
		"--health-cmd= x":                                `invalid argument "" for "--health-cmd" flag: must be a command`,
		"--health-interval 1 x":                          "must be a duration of at least 1s",
		"--health-timeout 0s x":                          "must be a duration longer than 0",
		"--health-retries 0 x":                           "must be a number of at least 1",
		"--health-start-period -1s x":                    "must be a duration that is not negative",
		"--health-on-failure kill x":                     `must be "none" or "restart"`,
		"--no-healthcheck --health-retries 2 x":          "run: --no-healthcheck contradicts the options for a health check",
		"--no-healthcheck " + pod:                        "--no-healthcheck is for an image's app; write it into the pod manifest",
		"--read-only " + pod:                             "--read-only is for an image's app; write it into the pod manifest",
		"--privileged " + pod:                            "--privileged is for an image's app; write it into the pod manifest",
		"--user 3 " + pod:                                "--user is for an image's app; write it into the pod manifest",
	} {
		h.refuse(2, want, append([]string{"run"}, strings.Fields(args)...)...)
	}
}

// Each option is a field of the manifests that the stager reads.
func TestRunOptionsAreFields(t *testing.T) {
	h := newHost(t)
	for options, want := range map[string]string{
		"--read-only":                         `"readOnlyRootFS":true`,
		"--privileged":                        `"isolators":[{"name":"os/linux/privileged","value":true}]`,
		"--entrypoint /else":                  `"exec":["/else"]`,
		"--label a=b=c --label d --label a=x": `"userLabels":{"a":"x","d":""}`,
		"--stop-timeout 90":                   `"gracePeriod":"90s"`,
		"--tmpfs /run:mode=700":               `"mounts":[{"appVolume":{"gid":0,"kind":"empty","mode":"700","name":"launcher-path","uid":0},"path":"/run","volume":"launcher-path"}]`,
		"--no-healthcheck":                    `"annotations":[{"name":"kurma.io/stager/health-cmd","value":"none"}]`,
		"--health-interval 5s --health-cmd true": `"annotations":[{"name":"kurma.io/stager/health-cmd","value":"true"},` +
			`{"name":"kurma.io/stager/health-interval","value":"5s"}]`,
		"--network host": `{"name":"os/linux/namespaces","value":{"net":"host"}}`,
	} {
		h.run(append(append([]string{"run", "--detach", "--name", "p"}, strings.Fields(options)...), "example.com/one")...)
		if out := h.run("inspect", "--json", "p"); !strings.Contains(out, want) {
			t.Errorf("%s: %s, want %s in it", options, out, want)
		}
		h.run("rm", "--force", "p")
	}
}

// The page for the launcher says of each option what it sets.
func TestRunOptionsAreDocumented(t *testing.T) {
	page := string(must(os.ReadFile("../docs/launcher.md")))
	_, section, _ := strings.Cut(page, "\n## Options of run\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := make(map[string]bool)
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, " | "); len(cells) == 2 {
			for _, option := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(cells[0], -1) {
				documented[option[1]] = true
			}
		}
	}
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	new(runOptions).declare(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		if !documented[f.Name] {
			t.Errorf("--%s is not in the table", f.Name)
		}
	})
	for name := range documented {
		if flags.Lookup(name) == nil {
			t.Errorf("run has no --%s", name)
		}
	}
}

// A warning names its app, and what a stranger has chosen stays in one line.
func TestWarningsAreOneLine(t *testing.T) {
	for want, w := range map[string]daemon.StagerWarning{
		`app "web": end log: disk full`: {App: "web", Text: "end log", Why: "disk full"},
		`"two\nlines"`:                  {Text: "two\nlines"},
		`no service: "\x1b[m"`:          {Text: "no service", Why: "\x1b[m"},
	} {
		if got := warningText(w); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAKeyThatNobodyReadsIsNamed(t *testing.T) {
	h := newHost(t)
	pod := h.text("typo.json", `{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"id":"`+h.listed()["example.com/one"].ID+`"},"app":{"exec":["/x"],"user":"0","group":"0","environmnt":[]}}]}`)
	r := h.try("run", "--detach", pod)
	want := `launcher: warning: typo.json: unknown key "environmnt" in apps[0].app, ignored; did you mean "environment"?` + "\n"
	if r.code != 0 || r.stderr != want {
		t.Errorf("%+v, want %q", r, want)
	}
	h.run("rm", "--force", "typo")
}

// A misspelt key is often why a pod is refused: it is named beside the error, which alone would not say what to mend.
func TestAKeyThatNobodyReadsIsNamedBesideTheError(t *testing.T) {
	h := newHost(t)
	id := h.listed()["example.com/one"].ID
	for name, tt := range map[string]struct{ text, key, words string }{
		"apps": {`"appps":[{"name":"a","image":{"id":"` + id + `"}}]`, `"appps", ignored; did you mean "apps"?`, "pod.apps: missing or empty"},
		"exec": {`"apps":[{"name":"a","image":{"id":"` + id + `"},"app":{"exce":["/x"],"user":"0","group":"0"}}]`, `"exce" in apps[0].app, ignored; did you mean "exec"?`, "exec: missing or empty"},
		"name": {`"apps":[{"nam":"a","image":{"id":"` + id + `"},"app":{"exec":["/x"],"user":"0","group":"0"}}]`, `"nam" in apps[0], ignored; did you mean "name"?`, "pod.apps[0].name: missing"},
		"user": {`"apps":[{"name":"a","image":{"id":"` + id + `"},"app":{"exec":["/x"],"usr":"0","group":"0"}}]`, `"usr" in apps[0].app, ignored; did you mean "user"?`, "user is required"},
	} {
		pod := h.text(name+".json", `{"acKind":"PodManifest","acVersion":"0.8.11",`+tt.text+`}`)
		for _, args := range [][]string{{"run", pod}, {"run", "--detach", pod}, {"validate", pod}} {
			r := h.try(args...)
			warning := "launcher: warning: " + name + ".json: unknown key " + tt.key + "\n"
			refusal, warned := strings.CutPrefix(r.stderr, warning)
			if r.code != 1 || !warned || strings.Count(refusal, "\n") != 1 || !strings.Contains(refusal, tt.words) {
				t.Errorf("%s: %+v, want %q and an error with %q", args, r, warning, tt.words)
			}
		}
	}
	h.checkNoPods()
}

// A pod that the reference stager would refuse also has its warnings.
func TestValidateWarnsOfAPodThatTheStagerRefuses(t *testing.T) {
	h := newHost(t)
	pod := h.text("both.json", `{"acKind":"PodManifest","acVersion":"0.8.11","volums":[],"apps":[{"name":"a","image":{"id":"`+h.listed()["example.com/one"].ID+`"},
		"app":{"exec":["/x"],"user":"0","group":"0","isolators":[{"name":"os/linux/capabilities-retain-set","value":{"set":["CAP_KILL"]}},
		{"name":"os/linux/capabilities-remove-set","value":{"set":["CAP_KILL"]}}]}}]}`)
	r := h.try("validate", pod)
	if r.code != 1 || !strings.HasPrefix(r.stderr, "launcher: warning: both.json: unknown key \"volums\"") || !strings.Contains(r.stderr, "must not be used together") {
		t.Errorf("%+v", r)
	}
}

// A stager image names what it adds to the reference stager: it is neither unknown nor checked.
func TestValidateKnowsWhatTheStagerImageNames(t *testing.T) {
	h := bareHost(t)
	manifest := fmt.Sprintf(stagerFormat, "")
	for name, value := range map[string]string{names.IsolatorsAnnotation: "example.com/a example.com/b", names.KeysAnnotation: "own"} {
		manifest = strings.Replace(manifest, `"annotations":[`, fmt.Sprintf(`"annotations":[{"name":%q,"value":%q},`, name, value), 1)
	}
	h.run("image", "import", h.stagerImageOf("stager.aci", manifest, h.key), h.image("one.aci", appManifest))
	config := string(must(os.ReadFile(filepath.Join(h.dir, "config.json"))))
	h.text("config.json", strings.Replace(config, "{", `{"defaultStagerConfig":{"own":1,"other":2},`, 1))
	pod := h.text("own.json", `{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"id":"`+h.listed()["example.com/one"].ID+`"},
		"app":{"exec":["/x"],"user":"0","group":"0","isolators":[{"name":"example.com/b","value":{}},{"name":"example.com/c","value":{}}]}}]}`)
	out := h.run("validate", pod)
	if !strings.Contains(out, "isolator example.com/b is undecided: only the stager image has it\n") ||
		!strings.Contains(out, "isolator example.com/c is ignored") || strings.Contains(out, "stagerConfig.own") || !strings.Contains(out, "unknown key, ignored: stagerConfig.other\n") {
		t.Errorf("validate prints\n%s", out)
	}
}

// A bad file does not keep the good ones from the store, and is named.
func TestImportGoesOnAfterABadFile(t *testing.T) {
	h := bareHost(t)
	bad := h.text("bad.aci", "nothing")
	r := h.try("image", "import", bad, h.image("one.aci", appManifest), filepath.Join(h.dir, "none.aci"))
	if r.code != 1 || strings.Count(r.stdout, "sha512-") != 1 || !strings.Contains(r.stderr, "bad.aci: ") || !strings.Contains(r.stderr, "none.aci: no such file") ||
		!strings.HasSuffix(r.stderr, "; 2 of 3 files are not imported\n") {
		t.Errorf("%+v", r)
	}
	if all := h.listed(); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

// People copy an ID with and without its prefix.
func TestImageIDsNeedNoPrefix(t *testing.T) {
	h := newHost(t)
	id := h.listed()["example.com/one"].ID
	h.image("base.aci", baseManifest)
	for _, ref := range []string{id, id[:20], strings.TrimPrefix(id, "sha512-"), strings.TrimPrefix(id, "sha512-")[:8]} {
		h.run("run", "--detach", "--name", "p", ref)
		h.run("rm", "--force", "p")
	}
	h.refuse(1, `no such image: "0000"`, "run", "0000")
}

func TestAConfigurationIsAnObject(t *testing.T) {
	h := bareHost(t)
	h.text("config.json", "")
	h.refuse(1, "config.json: the document is empty: want a JSON object, {} for the defaults", "ps")
	h.text("config.json", "[]")
	h.refuse(1, "config.json: not a JSON object, such as {} for the defaults", "ps")
}

func TestExecOptionsOverrideTheApp(t *testing.T) {
	h := newPod(t)
	t.Setenv("FROM_CALLER", "x")
	want := `{"exec":["settings"],"user":"5","group":"6","workingDirectory":"/tmp","environment":[{"name":"A","value":"c"},{"name":"FROM_CALLER","value":"x"}]}`
	if out := h.run("exec", "-u", "5:6", "-w", "/tmp", "-e", "A=c", "--env", "FROM_CALLER", "p", "--", "settings"); !strings.HasPrefix(out, want+"\n") {
		t.Errorf("%s, want %s", out, want)
	}
	if out := h.run("exec", "-iu", "5:8", "p", "--", "settings"); !strings.Contains(out, `"user":"5","group":"8"`) {
		t.Errorf("%s", out)
	}
}

func TestAServiceLearnsOfEachAppThatFails(t *testing.T) {
	for want, o := range map[string]runOptions{
		"failure": {cgroupParent: ownCgroup}, "all": {}, "": {detach: true},
	} {
		if asked := must(o.pod("run")); asked.Options.DefaultExit != want {
			t.Errorf("%+v: %q, want %q", o, asked.Options.DefaultExit, want)
		}
	}
}
