package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/dockerregistry"
	"kurma.io/stager/tests/harness"
)

// habit is a row of docs/from-podman.md.
type habit struct{ podman, ours string }

func habits(t *testing.T) []habit {
	t.Helper()
	text, err := os.ReadFile("../../docs/from-podman.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []habit
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " |")
		if theirs, ok := strings.CutPrefix(cells[0], "| `podman "); ok {
			all = append(all, habit{strings.Trim(theirs, "`"), strings.Trim(cells[1], " `")})
		}
	}
	return all
}

// habitFiles makes what the commands of docs/from-podman.md take from the folder in which they are executed, the images among
// them, which are all of one layer.
const habitFiles = `set -eu
mkdir -p conf root image/etc/nginx image/srv image/tmp bin
cp -a "$1" image/bin
ln -s /bin image/usr
echo conf >web.conf
echo A=b >web.env
cat >manifest.json <<'END'
{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/new"}
END
cat >pod.json <<'END'
{"acKind": "PodManifest", "acVersion": "0.8.11", "apps": [{"name": "nginx", "image": {"name": "docker.io/library/nginx"}}]}
END
umoci init --layout layout
umoci new --image layout:1
umoci insert --rootless --image layout:1 image /
umoci config --image layout:1 --config.cmd echo --config.cmd up --config.exposedports 80/tcp --config.env PATH=/bin
skopeo copy --quiet oci:layout:1 docker-archive:nginx.tar:docker.io/library/nginx:2
skopeo copy --quiet oci:layout:1 docker-archive:web.tar:localhost/web:1
`

// Each command of docs/from-podman.md does something.
func TestHabitsOfPodmanHaveCommands(t *testing.T) {
	t.Parallel()
	registries := t.TempDir()
	m := newNetMachine(t, "["+strings.Replace(bridgeEntry("nftables"), `"bridge"`, `"lan"`, 1)+"]", packaged(t), harness.OwnStore(), func(b *harness.Machine) {
		b.Shared = false
		for _, name := range pluginNames() {
			b.Images = append(b.Images, pluginACI(name))
		}
		b.Config["registriesDirectory"] = registries
	})
	dir := filepath.Join(m.Dir, "work")
	shell := func(script string, args ...string) harness.Result {
		t.Helper()
		cmd := m.host.command(append([]string{"sh", "-c", script, "sh"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+filepath.Dir(suite.Launcher)+":"+os.Getenv("PATH"))
		return harness.Finish(t, cmd)
	}
	must := func(script string, args ...string) {
		t.Helper()
		if r := shell(script, args...); r.Code != 0 {
			t.Fatalf("%s: %+v", script, r)
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	must(habitFiles, filepath.Join(suite.Store, suite.IDs["busybox"], "rootfs/bin"))
	wrapper := fmt.Sprintf("#!/bin/sh\nexec %s --config %s --state %s \"$@\"\n", suite.Launcher, filepath.Join(m.Dir, "config.json"), m.Dir)
	if err := os.WriteFile(filepath.Join(dir, "bin/launcher"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	registry, _ := dockerregistry.Run(t, m.host.enter()...)
	hosts := fmt.Sprintf("server = \"http://%s\"\n", registry)
	if err := os.Mkdir(filepath.Join(registries, "docker.io"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(registries, "docker.io/hosts.toml"), []byte(hosts), 0o600); err != nil {
		t.Fatal(err)
	}
	const images = "launcher image import docker://docker.io/library/nginx:1 docker://docker.io/library/alpine:1 docker://docker.io/library/postgres:1"
	must("for name in nginx alpine postgres; do skopeo copy --quiet --dest-tls-verify=false oci:layout:1 docker://" + registry + "/library/$name:1; done; " + images)
	m.LayersAreNow()

	const web = "launcher run -d --name web --label tier=front docker.io/library/nginx -- sh -c "
	long, short := web+`'echo up; trap "exit 0" TERM HUP; while :; do sleep 0.05; done'`, web+"'echo up; sleep 2'"
	before := map[string]string{
		"logs -f --tail 10 web": short, "attach web": short, "wait web": short,
		"volume inspect pgdata": "launcher volume import pgdata pgdata.tar || :", "volume rm pgdata": "launcher volume import pgdata pgdata.tar || :",
		"volume export pgdata -o pgdata.tar": "rm pgdata.tar; launcher volume import pgdata empty.tar || :",
		"volume import pgdata pgdata.tar":    "launcher volume rm pgdata",
	}
	must("tar -cf empty.tar -C conf . && cp empty.tar pgdata.tar")
	prints := map[string]string{
		"launcher image list": "docker.io/library/postgres", "launcher run --entrypoint sh docker.io/library/nginx -- -c id": "uid=0",
		"launcher run docker.io/library/nginx": "up\n", "launcher generate web": `"acKind": "PodManifest"`, "launcher ps --format {{.Name}}": "web\n",
		"launcher ps --filter label=tier=front": "web", "launcher logs -f --tail 10 web": "up\n", "launcher logs --since 10m -t web": "up\n",
		"launcher exec -u 0 -w /etc web -- ls": "nginx\n", "launcher status web": "running", "launcher wait web": "0\n",
		"launcher validate docker.io/library/nginx": "can be started", "launcher top web": "sh", "launcher events --since 1h": "created",
		"launcher network inspect lan": `"lan"`, "launcher volume inspect pgdata": "pgdata", "launcher cp web:/ -": "etc/nginx",
	}
	commands := 0
	for _, h := range habits(t) {
		if h.ours == "" || strings.HasPrefix(h.ours, "skopeo login") { // which needs a server with that name
			continue
		}
		commands++
		area, _, _ := strings.Cut(strings.TrimPrefix(h.ours, "launcher "), " ")
		first, special := before[h.podman]
		switch area {
		case "aci", "run", "volume", "network":
		case "image":
			if strings.HasPrefix(h.ours, "launcher image import") {
				first = "launcher image rm docker.io/library/nginx >/dev/null 2>&1 || :"
			}
		default:
			if !special {
				first = long
			}
		}
		if first != "" {
			must(first)
		}
		command := h.ours
		switch {
		case strings.Contains(command, " -it "):
			command = `(while echo exit; do sleep 0.1; done) 2>/dev/null | script -qec "` + command + `" /dev/null`
		case strings.HasPrefix(command, "launcher events"):
			command = "timeout -s INT 1 " + command
		}
		r := shell(command)
		if want := prints[h.ours]; !strings.Contains(r.Stdout, want) {
			t.Errorf("%s prints %q, want %q", h.ours, r.Stdout, want)
		}
		followed := strings.HasPrefix(h.ours, "launcher events") && r.Code == 124 // timeout(1) has ended it
		if r.Code != 0 && !followed {
			t.Errorf("%s: exit status %d\n%s%s", h.ours, r.Code, r.Stdout, r.Stderr)
		}
		must("launcher rm --all --force >/dev/null")
		if strings.HasPrefix(h.ours, "launcher image ") { // which may have removed some
			must(images + " >/dev/null")
			m.Must(append([]string{"image", "import"}, m.Images...)...)
		}
	}
	m.LayersAreNow()
	if commands < 60 {
		t.Errorf("the page has %d commands", commands)
	}
}
