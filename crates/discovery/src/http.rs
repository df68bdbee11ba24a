//! The options of the client for registries with an HTTP interface of their own.

use podward_api::registry_connection as api;
use podward_registries::{HttpCall, HttpListing, HttpOptions, HttpReading, HttpStatuses};

pub(crate) fn options(connection: api::HttpConnection) -> HttpOptions {
    HttpOptions {
        register: connection.register.map(call),
        deregister: connection.deregister.map(call),
        put_into_service: connection.put_into_service.map(call),
        take_out_of_service: connection.take_out_of_service.map(call),
        read: connection.read.map(|read| HttpReading {
            path: read.path,
            instances: read.instances,
            fields: read.fields,
            in_service_value: read.in_service_value,
            missing: read.missing,
        }),
        list: connection.list.map(|list| HttpListing {
            path: list.path,
            services: list.services,
            name: list.name,
        }),
        idempotency_header: connection.idempotency_header,
    }
}

fn call(call: api::HttpCall) -> HttpCall {
    let statuses = call.statuses.unwrap_or_default();
    HttpCall {
        method: call.method,
        path: call.path,
        headers: call.headers,
        body: call.body,
        statuses: HttpStatuses { done: statuses.done, gone: statuses.gone, retry: statuses.retry },
    }
}
