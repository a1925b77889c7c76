package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/clause"
	"kurma.io/stager/tests/harness"
)

// userData returns names and values that have a meaning in other places of a manifest.
func userData() map[string]string {
	return map[string]string{
		names.TTYAnnotation: "true", names.StdinAnnotation: "open", "kurma.io/stager/restart": "always",
		"appc.io/executor/supports-systemd-notify": "true",
		"os/linux/namespaces":                      `{"net": "host", "pid": "host"}`, "os/linux/privileged": "true",
		"os/linux/capabilities-retain-set": `{"set": ["CAP_SYS_ADMIN"]}`, "resource/memory": `{"limit": "1"}`,
		"os": "freebsd", "arch": "s390x", "PATH": "/nowhere", "readOnlyRootFS": "true", "exec": "/bin/false", "user": "1000",
		"": "", " \n\"": "\x00\u2028", "Not An Identifier": "x",
	}
}

// facts prints what a program sees of its surroundings, except names and numbers that differ between
// pods.
const facts = `exec 2>&1; env | grep -v AC_METADATA_URL= | sort; id; pwd; tty; hostname
grep -E '^(Cap.*|NoNewPrivs|Seccomp|Groups):' /proc/self/status; cat /proc/self/limits /proc/self/oom_score_adj
cut -d ' ' -f 3,4 /proc/self/mounts; ls /proc/self/fd /sys/class/net; ls -l /proc/self/ns | grep -c :
touch /x && echo written; cat /proc/self/cgroup | wc -l
`

// User annotations and labels of a pod and its apps do not change how it runs, and the pod's manifest
// has them.
func TestUserAnnotationsAndLabelsChangeNothing(t *testing.T) {
	clause.Covers(t, "C-UAN-01")
	t.Parallel()
	b := suite.NewMachine(t)
	saved := `wget -q -O /out/$AC_APP_NAME $AC_METADATA_URL/acMetadata/v1/pod/manifest`
	dir := b.Folder("out", 0o777)
	plain, annotated := harness.PodOf(suite.Shell("a", facts+saved)), harness.PodOf(suite.Shell("a", facts+saved))
	annotated.UserAnnotations, annotated.UserLabels = userData(), userData()
	annotated.Apps[0].App.UserAnnotations, annotated.Apps[0].App.UserLabels = userData(), userData()
	var printed []string
	for _, doc := range []harness.PodDoc{plain, annotated} {
		p := b.Up("same-name", doc.HostVolume("out", dir, "/out"))
		if code, reason := p.Exited("a"); code != 0 || reason != "" {
			t.Errorf("exit code %d %s", code, reason)
		}
		printed = append(printed, p.Logs("a"))
		p.Stop()
	}
	if diff := cmp.Diff(printed[0], printed[1]); diff != "" || !strings.Contains(printed[0], "written\n") {
		t.Errorf("without (-) and with them (+):\n%s", diff)
	}
	var served harness.PodDoc
	if err := json.Unmarshal([]byte(content(b, dir, "a")), &served); err != nil {
		t.Fatal(err)
	}
	for _, have := range []map[string]string{served.UserAnnotations, served.UserLabels, served.Apps[0].App.UserAnnotations, served.Apps[0].App.UserLabels} {
		if diff := cmp.Diff(userData(), have); diff != "" {
			t.Errorf("in the pod's manifest (-want +have):\n%s", diff)
		}
	}
}

// An image runs if it has no labels for the machine, or labels that match this machine. With an image
// for another machine nothing is started, not even the pod's other apps.
func TestImagesOfOtherMachinesAreRefused(t *testing.T) {
	clause.Covers(t, "C-LAB-01", "C-LAB-02")
	t.Parallel()
	b := suite.NewMachine(t, harness.OwnStore())
	labels := map[string]string{
		"none": ``, "os": `{"name": "os", "value": "linux"}`, "arch": `{"name": "arch", "value": "s390x"}`,
		"both":  `{"name": "os", "value": "linux"}, {"name": "arch", "value": "amd64"}`,
		"other": `{"name": "os", "value": "linux"}, {"name": "arch", "value": "s390x"}`,
		"bsd":   `{"name": "os", "value": "freebsd"}, {"name": "arch", "value": "amd64"}`,
	}
	busybox, err := os.ReadFile(filepath.Join(b.BusyboxLayer(), "bin/busybox"))
	if err != nil {
		t.Fatal(err)
	}
	doc := harness.PodOf()
	others := map[string]harness.ImageRef{}
	for name, list := range labels {
		path := image(b, name, fmt.Sprintf(`{"acKind":"ImageManifest","acVersion":"0.8.11","name":"tests/%s","labels":[%s]}`, name, list), func(root string) error {
			return errors.Join(os.Mkdir(filepath.Join(root, "bin"), 0o755), os.WriteFile(filepath.Join(root, "bin/sh"), busybox, 0o755))
		})
		app := suite.Shell(name, "echo runs; touch /v/$AC_APP_NAME")
		app.Image = harness.ImageRef{ID: strings.TrimSpace(b.Must("image", "import", path))}
		if name == "other" || name == "bsd" {
			others[name] = app.Image
			continue
		}
		doc.Apps = append(doc.Apps, app)
	}
	b.LayersAreNow()
	dir := b.Folder("volume", 0o777)
	for name, image := range others {
		bad := doc.HostVolume("v", dir, "/v")
		bad.Apps[len(bad.Apps)-1].Image = image
		b.Refuse(name, bad, map[string]string{"other": `arch "s390x"`, "bsd": `os "freebsd"`}[name])
	}
	if started, err := os.ReadDir(dir); err != nil || len(started) > 0 {
		t.Errorf("apps were started: %v, %v", started, err)
	}
	p := b.Up("p", doc)
	for _, app := range doc.Apps {
		if p.Exited(app.Name); !strings.Contains(p.Logs(app.Name), "runs\n") {
			t.Errorf("image %s says %q", app.Name, p.Logs(app.Name))
		}
	}
	p.Stop()
}
