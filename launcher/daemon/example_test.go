package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/podplan"
)

// open opens a daemon whose folders are in state, with the images that STAGER_ACI and STAGER_IMAGES name.
func open(state string) *daemon.Daemon {
	stager := os.Getenv("STAGER_ACI")
	plugin := filepath.Join(filepath.Dir(stager), "lo-netplugin.aci")
	config := daemon.Config{
		ParentCgroupName:   filepath.Base(state),
		DefaultStagerImage: "file://" + stager,
		TrustedKeys:        []string{stager + ".pub", plugin + ".pub"},
		ContainerNetworks:  []json.RawMessage{json.RawMessage(fmt.Sprintf(`{"name": "lo", "aci": %q}`, "file://"+plugin))},
	}
	return must(daemon.Open(config, daemon.Options{State: state, Programs: daemon.Programs{
		Monitor: []string{os.Args[0], "monitor", state}, // see TestMain
		Hold:    filepath.Join(os.Getenv("STAGER_BIN"), "launcher"),
	}}))
}

// A daemon imports an image, runs a pod with a volume and a network, follows the pod to its end, and removes it.
func Example() {
	needVariables()
	ctx, state := context.Background(), must(os.MkdirTemp("", "daemon-example-"))
	defer os.RemoveAll(state)
	d := open(state)
	launch, warnings, err := d.Create(ctx, daemon.PodOptions{
		Image: must(d.ImportImages(ctx, filepath.Join(os.Getenv("STAGER_IMAGES"), "busybox.aci")))[0].ID,
		Args:  []string{"-c", "echo up; until [ -e /data/go ]; do sleep 0.1; done; ip address show lo | grep -o '127.0.0.1/8'; exit 3"},
		Options: podplan.Options{
			DefaultExit: "all",
			Mounts:      []podplan.Mount{{Source: must(os.MkdirTemp(state, "data")), Target: "/data"}},
			Networks:    []networks.Request{{Name: "lo"}},
		},
		Detached: true,
	})
	check(err)
	defer launch.Close()
	check(launch.Start(ctx))
	pod := launch.Pod()
	app := must(daemon.FindApp(pod, ""))
	touch := daemon.Command{Exec: []string{"touch", "/data/go"}}
	fmt.Println("exec:", must(d.Exec(ctx, pod, app, touch, daemon.Caller{Stdio: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}})), warnings)
	check(d.Logs(ctx, pod, app.Name, daemon.LogOptions{Follow: true}, os.Stdout, os.Stdout))
	fmt.Println("exit:", *must(d.Wait(ctx, pod)).Code)
	check(d.RemovePod(ctx, pod, false))
	fmt.Println("networks:", must(d.Collect(ctx)).Networks)
	// Output:
	// exec: 0 []
	// up
	// 127.0.0.1/8
	// exit: 3
	// networks: [lo]
}
