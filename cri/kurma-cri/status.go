package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// showStatus asks the server at a socket as kubelet does, and writes a line for each of its conditions. A condition
// that does not hold is an error.
func showStatus(ctx context.Context, socket string, out io.Writer) error {
	const patience = time.Minute // the first import of the stager takes a while
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("ask server: %w", err)
	}
	defer func() { _ = connection.Close() }()
	client := runtimeapi.NewRuntimeServiceClient(connection)
	v, err := client.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return fmt.Errorf("ask server: %s", grpcstatus.Convert(err).Message())
	}
	r, err := client.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return fmt.Errorf("ask server: %s", grpcstatus.Convert(err).Message())
	}
	fmt.Fprintf(out, "%s %s: CRI %s\n", v.RuntimeName, v.RuntimeVersion, v.RuntimeApiVersion)
	return showConditions(r.GetStatus().GetConditions(), out)
}

func showConditions(all []*runtimeapi.RuntimeCondition, out io.Writer) error {
	ready := true
	for _, c := range all {
		if c.Status {
			fmt.Fprintf(out, "%s: yes\n", c.Type)
			continue
		}
		ready = false
		fmt.Fprintf(out, "%s: no: %s\n", c.Type, c.Message)
	}
	if !ready {
		return errors.New("this node cannot run pods")
	}
	return nil
}
