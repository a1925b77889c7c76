// Command client calls a server of the CRI as kubelet does, where kubelet and crictl are missing: in the virtual machine
// that tests the Debian packages (tests/vm/service.sh), and where faults are injected (tests/inject).
//
//	client SOCKET run CGROUP IMAGE COMMAND...  starts a container in a sandbox below kubelet's cgroup, with a memory limit
//	                                           of 64 MiB, and prints its ID
//	client SOCKET state ID                     prints the container's state
//	client SOCKET call METHOD REQUEST          makes the call with a request in JSON, and prints the answer as JSON
//	client SOCKET watch METHOD REQUEST         makes the call, and prints the event of the next container that ends
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func main() {
	text, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, text)
}

func run(args []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // the machine is emulated
	defer cancel()
	if len(args) < 3 {
		return "", fmt.Errorf("usage: client SOCKET run CGROUP IMAGE COMMAND... | state ID | call METHOD REQUEST | watch METHOD REQUEST")
	}
	connection, err := grpc.NewClient("unix://"+args[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer func() { _ = connection.Close() }()
	client := runtimeapi.NewRuntimeServiceClient(connection)
	switch {
	case args[1] == "run" && len(args) > 3:
		return start(ctx, client, args[2], args[3], args[4:])
	case args[1] == "call" && len(args) == 4:
		return call(ctx, connection, args[2], args[3])
	case args[1] == "watch" && len(args) == 4:
		return watch(ctx, connection, args[2], args[3])
	case args[1] == "state":
		r, err := client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: args[2]})
		return r.GetStatus().GetState().String(), err
	default:
		return "", fmt.Errorf("unknown command %q", args[1])
	}
}

// start returns the ID of a container that it has started.
func start(
	ctx context.Context, client runtimeapi.RuntimeServiceClient, cgroup, image string, command []string,
) (string, error) {
	namespaces := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "test", Uid: "test", Namespace: "test"}, LogDirectory: "/var/log/pods/test",
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: cgroup, SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: namespaces},
		},
	}
	made, err := client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		return "", err
	}
	created, err := client.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: made.PodSandboxId, SandboxConfig: sandbox, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: image},
			Command: command, LogPath: "app.log",
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources:       &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 64 << 20},
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: namespaces},
			},
		},
	})
	if err != nil {
		return "", err
	}
	_, err = client.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created.ContainerId})
	return created.ContainerId, err
}
