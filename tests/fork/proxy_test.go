package fork

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// release is the version under which a test publishes the module first, with the module's path.
var release = module.Version{Path: "kurma.io/stager", Version: "v0.1.0"}

// Outside of the repository, the programs install and the packages import as the modules of others do: from a proxy,
// which knows no replace directive and no work space.
func TestTheModuleIsInstalledAndImported(t *testing.T) {
	project := copyTree(t)
	env := proxied(t, publish(t, project))

	bin := t.TempDir()
	user := emptyFolder(t)
	user.run(append(env, "GOBIN="+bin), "go", "install",
		release.Path+"/launcher@"+release.Version, release.Path+"/cri/kurma-cri@"+release.Version, release.Path+"/build/aci@"+release.Version)
	for _, program := range []string{"launcher", "kurma-cri", "aci"} {
		if out := user.run(env, filepath.Join(bin, program), "--help"); !strings.Contains(out, program) {
			t.Errorf("%s --help prints:\n%s", program, out)
		}
		if out := user.run(env, filepath.Join(bin, program), "--version"); !strings.HasSuffix(out, " "+strings.TrimPrefix(release.Version, "v")+"\n") {
			t.Errorf("%s --version prints %q", program, out)
		}
	}

	importer := emptyFolder(t)
	importer.run(env, "go", "mod", "init", "example.com/importer")
	importer.write("main.go", importing)
	example := emptyFolder(t)
	example.run(env, "go", "mod", "init", "example.com/example")
	for _, name := range []string{"main_test.go", "example_test.go"} {
		example.write(name, project.read("launcher/daemon/"+name))
	}
	for _, other := range []tree{importer, example} {
		other.run(env, "go", "get", release.Path+"@"+release.Version)
		other.run(env, "go", "mod", "tidy")
		if mod := other.read("go.mod"); !strings.Contains(mod, release.Path+" "+release.Version+"\n") {
			t.Errorf("the module requires:\n%s", mod)
		}
	}
	if out := importer.run(env, "go", "run", "."); out != "overlay aufs copy\n<nil> manifest: not a JSON document: line 1, column 1: unexpected end of JSON input\nstatus: 0 apps\nno log\n" {
		t.Errorf("the program prints:\n%s", out)
	}
	example.run(env, "go", "test", "-c", "-o", os.DevNull, ".")
}

// importing is a program on rooms that a product takes alone.
const importing = `package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"kurma.io/stager/crilog"
	"kurma.io/stager/manifest"
	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/unionfs"
)

func main() {
	drivers := unionfs.NamesOf(unionfs.Drivers())
	fmt.Println(strings.Join(drivers, " "))
	fmt.Println(decide(nil, drivers))
	fmt.Printf("status: %d apps\n", len(supervisor.New(supervisor.Config{}).Status()))
	err := crilog.Read(context.Background(), "missing", crilog.ReadOptions{}, func(crilog.Entry) error { return nil })
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Println("no log")
	}
}

// decide plans the pod of a Stager Manifest.
func decide(document []byte, drivers []string) (*plan.Pod, error) {
	m, err := manifest.Read(bytes.NewReader(document))
	if err != nil {
		return nil, err
	}
	return plan.Decide(m, spec.Support{}, drivers, nil)
}
`

// publish makes a folder that is a proxy with the module as it is in each of the trees: v0.1.0, v0.2.0 and so on.
func publish(t *testing.T, trees ...tree) string {
	t.Helper()
	proxy := t.TempDir()
	dir := filepath.Join(proxy, release.Path, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	versions := tree{t, dir}
	var list string
	for i, project := range trees {
		version := module.Version{Path: release.Path, Version: fmt.Sprintf("v0.%d.0", i+1)}
		list += version.Version + "\n"
		versions.write(version.Version+".mod", project.read("go.mod"))
		versions.write(version.Version+".info", fmt.Sprintf(`{"Version": %q, "Time": "2026-01-01T00:00:00Z"}`, version.Version))
		archive, err := os.Create(versions.path(version.Version + ".zip"))
		if err != nil {
			t.Fatal(err)
		}
		if err := modzip.CreateFromDir(archive, version, project.dir); err != nil {
			t.Fatal(err)
		}
		if err := archive.Close(); err != nil {
			t.Fatal(err)
		}
	}
	versions.write("list", list)
	return proxy
}

// proxied is the environment in which the go command takes modules from a proxy, and those that it lacks from what this
// machine has downloaded, or from this machine's own proxy. The module cache is empty.
func proxied(t *testing.T, proxy string) []string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache, others, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return []string{
		"GOPROXY=file://" + proxy + ",file://" + filepath.Join(cache, "cache/download") + "," + others,
		"GONOSUMDB=" + strings.Split(release.Path, "/")[0], "GOPRIVATE=", "GONOPROXY=", "GOWORK=off", "GOMODCACHE=" + t.TempDir(),
		// As make builds them, so that the packages of others are in the build cache.
		"CGO_ENABLED=0", "GOFLAGS=-trimpath -modcacherw",
	}
}

func emptyFolder(t *testing.T) tree {
	t.Helper()
	return tree{t, t.TempDir()}
}

func (f tree) write(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(f.path(name), []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}
