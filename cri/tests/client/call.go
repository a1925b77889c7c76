package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// call makes a call of any method that streams nothing. The request, and the answer that it returns, are JSON.
func call(ctx context.Context, connection *grpc.ClientConn, method, request string) (string, error) {
	services := runtimeapi.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto.Services()
	for i := range services.Len() {
		service := services.Get(i)
		m := service.Methods().ByName(protoreflect.Name(method))
		if m == nil {
			continue
		}
		in, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
		if err != nil {
			return "", err
		}
		out, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
		if err != nil {
			return "", err
		}
		asked, answer := in.New().Interface(), out.New().Interface()
		if err := protojson.Unmarshal([]byte(request), asked); err != nil {
			return "", err
		}
		if err := connection.Invoke(ctx, fmt.Sprintf("/%s/%s", service.FullName(), method), asked, answer); err != nil {
			return "", err
		}
		text, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(answer)
		return string(text), err
	}
	return "", fmt.Errorf("unknown method %q", method)
}

// watch makes a call while it receives events, and returns the event of the next container that ends, in JSON.
func watch(ctx context.Context, connection *grpc.ClientConn, method, request string) (string, error) {
	stream, err := runtimeapi.NewRuntimeServiceClient(connection).GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return "", err
	}
	if _, err := call(ctx, connection, method, request); err != nil {
		return "", err
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			return "", fmt.Errorf("receive event: %w", err)
		}
		if event.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
			text, err := protojson.Marshal(event)
			return string(text), err
		}
	}
}
