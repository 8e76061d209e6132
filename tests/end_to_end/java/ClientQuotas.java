package org.apache.kafka.controller;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.OptionalInt;
import org.apache.kafka.common.metadata.ClientQuotaRecord;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AlterClientQuotasRequest;
import org.apache.kafka.common.requests.AlterClientQuotasResponse;
import org.apache.kafka.common.requests.DescribeClientQuotasRequest;
import org.apache.kafka.controller.errors.EventHandlerExceptionInfo;
import org.apache.kafka.image.ClientQuotaImage;
import org.apache.kafka.image.ClientQuotasDelta;
import org.apache.kafka.image.ClientQuotasImage;

/**
 * Kafka's own answers to quota requests, from the classes of its controller and brokers, without a broker. Reads
 * lines: "reset", or API key, version and request body in hexadecimal. Answers each with the response body, or an
 * empty line.
 */
public class ClientQuotas {
    private static ClientQuotaControlManager manager;

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        reset();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", -1);
            if (parts[0].equals("reset")) {
                reset();
                System.out.println();
            } else {
                short version = Short.parseShort(parts[1]);
                var body = new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(parts[2])));
                Message answer = parts[0].equals("48") ? describe(body, version) : alter(body, version);
                ByteBuffer bytes = MessageUtil.toByteBufferAccessor(answer, version).buffer();
                byte[] out = new byte[bytes.remaining()];
                bytes.get(out);
                System.out.println(HexFormat.of().formatHex(out));
            }
        }
    }

    private static void reset() {
        manager = new ClientQuotaControlManager.Builder().build();
    }

    private static Message alter(ByteBufferAccessor body, short version) {
        AlterClientQuotasRequest request = AlterClientQuotasRequest.parse(body, version);
        try {
            var result = manager.alterClientQuotas(request.entries());
            if (!request.validateOnly()) {
                result.records().forEach(record -> manager.replay((ClientQuotaRecord) record.message()));
            }
            return AlterClientQuotasResponse.fromQuotaEntities(result.response(), 0).data();
        } catch (RuntimeException e) {
            var error = EventHandlerExceptionInfo.fromInternal(e, OptionalInt::empty).effectiveExternalException();
            return request.getErrorResponse(0, error).data();
        }
    }

    private static Message describe(ByteBufferAccessor body, short version) {
        DescribeClientQuotasRequest request = DescribeClientQuotasRequest.parse(body, version);
        // As a broker comes by them that starts.
        var delta = new ClientQuotasDelta(ClientQuotasImage.EMPTY);
        manager.clientQuotaData.forEach((entity, quotas) -> quotas.forEach((key, value) -> delta.replay(
            new ClientQuotaRecord().setEntity(ClientQuotaImage.entityToData(entity)).setKey(key).setValue(value))));
        try {
            return delta.apply().describe(request.data());
        } catch (RuntimeException e) {
            return request.getErrorResponse(0, e).data();
        }
    }
}
